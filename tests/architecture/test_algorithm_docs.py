"""The page on algorithms names every preset, part and kind, with the numbers that the code has."""

import re
import typing
from pathlib import Path

import pytest

from flows.algorithms_view import parts_of
from tasks.grpo import components
from tasks.grpo.config import UpdateConfig
from tasks.grpo.presets import DEFAULTS, PRESETS, TAGS

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
UNIONS = {
    "advantages": components.AdvantagesConfig,
    "objective": components.ObjectiveConfig,
    "aggregation": components.AggregationConfig,
    "kl": components.KlConfig,
    "group_filter": components.FilterConfig,
    "overlong": components.OverlongConfig,
    "rollout_correction": components.CorrectionConfig,
}


def row(name):
    found = re.search(rf"^\| `{name}` \|.*$", PAGE, re.MULTILINE)
    assert found, f"{name} has no row"
    return found[0]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_row_with_its_paper(name):
    first = re.search(r"arXiv:(\d{4}\.\d{5})", PRESETS[name].source)[1]
    assert first in row(name) or "DeepSeekMath" in row(name)


@pytest.mark.parametrize("part", UNIONS)
def test_every_kind_and_every_knob_of_a_part_is_named(part):
    tag = TAGS.get(part, "kind")
    for config in typing.get_args(typing.get_args(UNIONS[part])[0]):
        for kind in typing.get_args(config.model_fields[tag].annotation):
            assert f"`{kind}`" in row(part), kind
        for knob in set(config.model_fields) - {tag}:
            assert re.search(rf"`{knob}`|bounds", row(part)), knob


def test_every_part_is_named():
    assert set(UNIONS) | {"rollout_policy", "critic"} == set(DEFAULTS)
    for name in set(UpdateConfig.model_fields) - set(DEFAULTS) - {"algorithm", "optimiser"}:
        assert f"`{name}`" in PAGE, name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("grpo", "advantages group; objective clip; kl loss (estimator k3, beta 0.04)"),
        ("dr_grpo", "advantages group (scale none); objective clip; aggregation fixed_length"),
        ("rft", "advantages correct_only; objective log_likelihood; completions of the lineage's first policy"),
    ],
)
def test_the_short_form_names_what_the_preset_sets(name, said):
    assert parts_of(PRESETS[name]) == said
