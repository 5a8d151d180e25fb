"""The page on reward models names every kind of label and every setting with the default that the code has."""

import json
import re
import typing
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from tasks.reward.config import (
    AnchorConfig,
    CalibrationConfig,
    PairsConfig,
    PointsConfig,
    RewardModelConfig,
    RewardTrainingConfig,
)
from tasks.reward.label_kinds import LABELS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reward-models.md").read_text(encoding="utf-8")


def rows_with(name):
    return [line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line]


def shown(default):
    return "required" if default is PydanticUndefined else default if isinstance(default, str) else f"{default:g}"


@pytest.mark.parametrize("config", LABELS, ids=lambda config: config.__name__)
def test_every_kind_of_label_has_a_row(config):
    (kind,) = typing.get_args(config.model_fields["kind"].annotation)
    assert rows_with(kind)


@pytest.mark.parametrize("config", [PairsConfig, PointsConfig, AnchorConfig])
def test_the_settings_of_a_part_stand_in_its_row_with_their_defaults(config):
    for name, field in config.model_fields.items():
        if name != "kind":
            assert any(re.search(rf"`{name}` {re.escape(shown(field.default))}\b", row) for row in rows_with(name)), (
                name
            )


@pytest.mark.parametrize(
    ("prefix", "config"),
    [("", RewardModelConfig), ("training.", RewardTrainingConfig), ("calibration.", CalibrationConfig)],
)
def test_every_setting_has_a_row_with_its_default(prefix, config):
    parts = {"labels", "replay", "training", "anchor", "calibration"}  # they have settings of their own
    for name, field in config.model_fields.items():
        if prefix or name not in parts:
            assert any(shown(field.default) in row.split("|")[2] for row in rows_with(f"{prefix}{name}")), name


def test_the_numbers_of_the_replay_benchmark_are_those_of_its_file():
    found = json.loads((ROOT / "benchmarks" / "results" / "replay.json").read_text())["forgetting"]
    for share, (mean, low, high) in found.items():
        assert f"| {float(share) * 100:g} % | {mean:+.3f} [{low:+.3f}, {high:+.3f}] |" in PAGE, share
