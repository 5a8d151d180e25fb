"""docs/durability.md: every kill and fault of `make chaos` stands in it, with what is promised."""

import re
from pathlib import Path

import pytest

from tests.chaos.campaigns import CAMPAIGNS
from tests.chaos.run import FAULTS

DOCS = (Path(__file__).parents[2] / "docs" / "durability.md").read_text(encoding="utf-8")


def row_of(name):
    (row,) = re.findall(rf"^\| {re.escape(name)} \|(.*)$", DOCS, re.MULTILINE)
    return row


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_its_row_with_what_is_promised(fault):
    assert row_of(fault).startswith(f" {FAULTS[fault].__doc__.strip()} |")


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_every_target_of_kills_has_its_row_with_their_number(campaign):
    assert row_of(campaign).startswith(f" {CAMPAIGNS[campaign].num_kills} |")


def test_the_sum_of_the_kills_is_the_one_in_the_text():
    total = sum(plan.num_kills for plan in CAMPAIGNS.values())
    assert total >= 60
    assert f"{total} kills" in DOCS
