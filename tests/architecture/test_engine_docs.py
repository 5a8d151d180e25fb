"""The page on engines names every kind, every setting with the default that the code has, and every metric."""

import re
import typing
from pathlib import Path

import pytest

from tasks.rollout.config import EngineConfig, VllmEngineConfig, VllmServerConfig
from tasks.rollout.vllm_answers import FINISH_REASONS
from tasks.rollout.vllm_counts import NAMES, Counts
from tasks.rollout.vllm_dispatch import MAX_ATTEMPTS
from tasks.rollout.vllm_parity import MAX_PROBE_TOKENS

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")


def rows_with(name):
    return [line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1]]


def test_every_kind_of_engine_has_a_row():
    for config in typing.get_args(typing.get_args(EngineConfig)[0]):
        (kind,) = typing.get_args(config.model_fields["kind"].annotation)
        assert rows_with(kind), kind


@pytest.mark.parametrize("config", [VllmEngineConfig, VllmServerConfig])
def test_every_setting_of_vllm_has_a_row_with_its_default(config):
    said = {(): "none", None: "the model's context", False: "false"}
    for name, field in config.model_fields.items():
        if name in ("kind", "server"):
            continue
        default = said.get(field.default, f"{field.default:g}" if isinstance(field.default, float) else field.default)
        assert any(re.search(rf"(^|\W){re.escape(str(default))}\b", row.split("|")[2]) for row in rows_with(name)), name


def test_every_metric_has_a_row():
    counts = Counts()
    counts.measured([0.5])
    assert set(NAMES) < set(counts.taken())
    counts.measured([0.5])
    for name in counts.taken():
        assert rows_with(name), name


def test_every_reason_to_finish_has_a_row():
    for reason in FINISH_REASONS:
        assert rows_with(reason), reason


def test_the_numbers_in_the_text_are_those_of_the_code():
    assert (MAX_ATTEMPTS, MAX_PROBE_TOKENS) == (4, 16)
    assert "at most four times in all" in PAGE
    assert "16 tokens each" in PAGE


def test_counts_begin_anew_once_they_are_reported():
    counts = Counts()
    counts.add("num_retried_requests", 2)
    counts.add("num_retried_requests")
    counts.measured([0.1, 0.3])
    first = counts.taken()
    assert (first["num_retried_requests"], first["num_parity_tokens"]) == (3, 2)
    assert (first["parity_max_difference"], first["parity_mean_difference"]) == (0.3, 0.2)
    assert counts.taken() == dict.fromkeys(NAMES, 0.0)
