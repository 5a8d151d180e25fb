"""Every table: complete, each row with its source and its test; every recipe and command as the README says."""

import importlib
import inspect
import re
import tomllib
import typing
from pathlib import Path

import pytest

from flows.config import PipelineConfig
from flows.recipes import shipped
from tasks.grpo.presets import PRESETS

ROOT = Path(__file__).parents[2]

# table -> (where the settings' union stands, or None)
TABLES = {
    "tasks.verifiers.table:VERIFIERS": "tasks.verifiers.kinds:VerifierConfig",
    "tasks.verifiers.instruction_checks:CHECKS": "tasks.verifiers.instruction_kinds:Instruction",
    "tasks.verifiers.steps:SPLITS": "tasks.verifiers.text_kinds:StepSplit",
    "tasks.rollout.engines:ENGINES": "tasks.rollout.config:EngineConfig",
    "tasks.curriculum.sources:SOURCES": "tasks.curriculum.config:PromptSource",
    "tasks.policy.sources:SOURCES": "tasks.policy.config:PolicyConfig",
    "tasks.reward.label_kinds:LABELS": "tasks.reward.config:LabelsConfig",
    "tasks.reward.replay:REPLAYS": "tasks.reward.config:ReplayConfig",
    "tasks.grpo.algorithms:OBJECTIVES": "tasks.grpo.components:ObjectiveConfig",
    "tasks.grpo.estimators:ESTIMATORS": "tasks.grpo.components:AdvantagesConfig",
    "tasks.grpo.aggregation:AGGREGATIONS": "tasks.grpo.components:AggregationConfig",
    "tasks.grpo.correction:CORRECTIONS": "tasks.grpo.components:CorrectionConfig",
    "tasks.grpo.kl:ESTIMATORS": None,
    "tasks.grpo.layouts:LAYOUTS": None,
}


def named(name):
    module, attribute = name.split(":")
    return getattr(importlib.import_module(module), attribute)


@pytest.mark.parametrize("table", [name for name, union in TABLES.items() if union])
def test_a_table_has_a_row_for_every_kind_of_its_settings(table):
    union = typing.get_args(named(TABLES[table]))[0]
    assert set(named(table)) == set(typing.get_args(union))


@pytest.mark.parametrize("table", TABLES)
def test_every_row_names_its_source(table):
    for row in named(table).values():
        # an aggregation is a pair of functions, a kind of label several
        row = getattr(row, "denominator", getattr(row, "loss", row))
        assert "Source:" in inspect.getdoc(row), row


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_names_its_paper(preset):
    assert re.search(r"arXiv:\d{4}\.\d{5}", PRESETS[preset].source)


@pytest.mark.parametrize(
    "function",
    [
        "tasks.grpo.advantages:centre_and_scale",
        "tasks.grpo.advantages:centre",
        "tasks.grpo.advantages:leave_one_out",
        "tasks.grpo.advantages:step_sums",
        "tasks.grpo.advantages:gae",
        "tasks.grpo.shaping:overlong_penalty",
        "tasks.grpo.shaping:kl_penalties",
        "tasks.grpo.losses:sequence_log_ratio",
        "tasks.grpo.losses:weighted_likelihood",
        "tasks.grpo.losses:clipped_value_loss",
        "tasks.grpo.losses:clipped_surrogate",
        "tasks.reward.losses:bradley_terry",
        "tasks.reward.losses:binary_cross_entropy",
        "tasks.reward.calibration:fit_temperature",
        "tasks.reward.calibration:negative_log_likelihood",
        "tasks.reward.calibration:expected_calibration_error",
        "tasks.reward.calibration:brier_score",
        "tasks.evaluation.pass_at_k:pass_at_k",
        "tasks.evaluation.bootstrap:paired_bootstrap",
        "tasks.evaluation.agreement:agreement_metrics",
        "tasks.evaluation.alarm:judge",
        "tasks.values.ranks:average_ranks",
        "tasks.values.ranks:spearman",
        "tasks.values.ranks:auc",
    ],
)
def test_every_number_that_is_reported_names_its_source(function):
    assert "Source:" in inspect.getdoc(named(function))


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_reached_by_a_test(table):
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    name = table.split(":")[1]
    for key, row in named(table).items():
        label = key if isinstance(key, str) else key.__name__
        kind = (
            ""
            if isinstance(key, str)
            else typing.get_args(key.model_fields["kind"].annotation)[0]
            if "kind" in key.model_fields
            else ""
        )
        reached = (
            label in tests
            or f'kind="{kind}"' in tests
            or f'"{kind}"' in tests
            or re.search(rf"parametrize\(.*\b{name}\b", tests)
        )
        assert reached, f"{label} of {table} ({row}) has no test"


@pytest.mark.parametrize("recipe", shipped())
def test_every_shipped_recipe_parses_and_begins_with_a_sentence(recipe):
    path = ROOT / "deployments" / "configs" / f"{recipe}.toml"
    config = PipelineConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    assert config.name == recipe
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_the_readme_names_every_file_of_the_code():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for room in ("flows", "tasks", "storage"):
        for path in (ROOT / room).rglob("*.py"):
            if path.name != "__init__.py":
                assert f"`{path.relative_to(ROOT).as_posix()}`" in readme, path


def test_nothing_speaks_of_another_place():
    folders = "|".join(("work", "root", "tmp", "home"))
    unfinished = "|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error"))
    words = re.compile(rf"/({folders})/|\b({unfinished})\b")
    for path in [
        *ROOT.glob("*.md"),
        *(p for room in ("flows", "tasks", "storage") for p in (ROOT / room).rglob("*.py")),
    ]:
        assert not words.search(path.read_text(encoding="utf-8")), path
