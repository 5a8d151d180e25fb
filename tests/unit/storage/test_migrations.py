"""Older recipes, records and tables, step by step to today's."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from storage import lineages, migrations, table_migrations
from storage.errors import CorruptArtifact, RecipeConflict, UnknownFormat
from storage.schemas import SCHEMA_VERSION, schema_of

OLD_UPDATE = {
    "kl_beta": 0.04,
    "clip_low": 0.1,
    "clip_high": 0.3,
    "num_epochs": 2,
    "advantages": {"truncated": "mask", "eps": 1e-6},
}
OLD = {
    "name": "r",
    "update": OLD_UPDATE,
    "reward_model": {
        "pairs": {"max_pairs_per_group": 4, "min_margin": 0.05},
        "training": {"batch_pairs": 16, "num_epochs": 1},
    },
}
NOW = {
    "name": "r",
    "update": {
        "num_epochs": 2,
        "kl": {"beta": 0.04, "estimator": "k3", "placement": "loss"},
        "objective": {"kind": "clip", "clip_low": 0.1, "clip_high": 0.3, "dual_clip": None},
        "advantages": {"kind": "group", "ddof": 1, "normalise": "total", "eps": 1e-6},
        "truncated": "mask",
        "aggregation": {"kind": "sequence_mean"},
        "group_filter": {"kind": "keep"},
        "overlong": {"kind": "none"},
        "rollout_correction": {"kind": "none"},
        "rollout_policy": "current",
        "critic": None,
        "entropy_coefficient": 0.0,
    },
    "reward_model": {
        "labels": {"kind": "pairs", "max_pairs_per_group": 4, "min_margin": 0.05},
        "training": {"batch_labels": 16, "num_epochs": 1},
    },
}


def write_old(place, recipe):
    (place.lineage_folder / "lineage.json").write_text(
        json.dumps({"format": 1, "name": "lineage", "recipe": recipe, "created_at": "2026-01-01", "code": {}})
    )


def test_a_recipe_of_schema_1_reads_in_todays_names(place):
    write_old(place, OLD)
    assert lineages.read_recipe(Path(place.root), "lineage") == NOW


def test_a_recipe_in_todays_names_is_left_alone():
    assert migrations.lineage_from_1({"recipe": NOW}) == {"recipe": NOW}


def test_an_older_lineage_goes_on_with_settings_that_it_did_not_have_recorded_and_named(place, caplog):
    write_old(place, OLD)
    asked = {**NOW, "update": {**NOW["update"], "precision": "auto"}, "added": {"a": 1}}
    lineages.record_recipe(place, asked)
    assert lineages.read_recipe(Path(place.root), "lineage") == asked
    written = json.loads((place.lineage_folder / "lineage.json").read_text())
    assert (written["format"], written["created_at"]) == (2, "2026-01-01")
    assert "settings that it did not have are recorded as this run has them: added, update.precision" in caplog.text
    changed = {**asked, "added": {"a": 2}}
    with pytest.raises(RecipeConflict, match=r"added\.a: recorded 1, asked 2"):
        lineages.record_recipe(place, changed)


def test_an_older_lineage_refuses_a_setting_that_it_had_with_another_value(place):
    write_old(place, OLD)
    asked = json.loads(json.dumps(NOW))
    asked["update"]["kl"]["beta"] = 0.1
    before = (place.lineage_folder / "lineage.json").read_bytes()
    with pytest.raises(RecipeConflict, match=r"update\.kl\.beta: recorded 0.04, asked 0.1"):
        lineages.record_recipe(place, asked)
    assert (place.lineage_folder / "lineage.json").read_bytes() == before


def test_a_lineage_of_today_refuses_a_setting_that_it_does_not_have(place):
    lineages.record_recipe(place, {"verifier": {"options": {}}})
    with pytest.raises(RecipeConflict, match=r"verifier\.options\.x: recorded nothing, asked 1"):
        lineages.record_recipe(place, {"verifier": {"options": {"x": 1}}})


@pytest.mark.parametrize("number", [0, -1, 4, "2", None, True, 1.5])
def test_a_number_that_no_step_leads_from_is_refused_with_the_cure(number):
    steps = {1: dict, 2: dict}
    with pytest.raises(UnknownFormat, match=r"x has format .*, this code reads 1 to 3; use the version"):
        migrations.brought_forward({"format": number}, steps, Path("x"))


def test_each_step_is_taken_once_and_in_order():
    steps = {number: lambda fields, n=number: {"path": [*fields["path"], n]} for number in (1, 2, 3)}
    assert migrations.brought_forward({"path": []}, steps, Path("x")) == {"path": [1, 2, 3]}
    assert migrations.brought_forward({"path": [], "format": 3}, steps, Path("x")) == {"path": [3]}
    assert migrations.brought_forward({"path": [], "format": 4}, steps, Path("x")) == {"path": []}


def test_a_record_of_format_1_has_its_tables_under_todays_names():
    fields = {
        "tables": {
            "pairs": {"uri": "/a/l/iteration-0000/pairs", "digest": "d", "table": "pairs", "num_rows": 1},
            "reward_training": {
                "uri": "/a/l/iteration-0000/rt",
                "digest": "e",
                "table": "reward_training",
                "num_rows": 1,
            },
        }
    }
    assert migrations.record_from_1(fields)["tables"] == {
        "labels": {"uri": "l/iteration-0000/pairs", "digest": "d", "table": "pairs", "num_rows": 1},
        "reward_training": {"uri": "l/iteration-0000/rt", "digest": "e", "table": "mixed_pairs", "num_rows": 1},
    }


@pytest.mark.parametrize(
    "steps", [migrations.LINEAGE_STEPS, migrations.RECORD_STEPS, migrations.DECISION_STEPS, table_migrations.STEPS]
)
def test_the_steps_are_numbered_without_a_gap(steps):
    assert list(steps) == list(range(1, len(steps) + 1))


def test_the_last_step_leads_to_todays_schema():
    assert max(table_migrations.STEPS) + 1 == SCHEMA_VERSION


def old_pairs():
    schema = schema_of("pairs")
    values = {"pair_id": ["a"], "chosen_reward": [1.0], "rejected_reward": [None], "origin_iteration": [3]}
    names = ["pair_id" if name == "label_id" else name for name in schema.names]
    columns = [
        pa.array(values.get(name, [[1, 2]] if name.endswith("_ids") else ["x"]), type=field.type)
        for name, field in zip(names, schema, strict=True)
    ]
    return pa.table(dict(reversed(list(zip(names, columns, strict=True)))))


@pytest.mark.parametrize("version", [1, 2])
def test_pairs_become_labels_in_todays_order(version):
    table = table_migrations.forward(old_pairs(), "pairs", version, Path("x"))
    assert table.schema == schema_of("pairs")
    (row,) = table.to_pylist()
    assert (row["label_id"], row["chosen_reward"], row["rejected_reward"], row["origin_iteration"]) == (
        "a",
        1.0,
        None,
        3,
    )


def test_samples_of_schema_1_do_not_know_what_came_later():
    schema = schema_of("samples")
    later = {"overlong_penalty", "reference_logprobs", "values", "returns"}
    kept = [field for field in schema if field.name not in later]
    row = {field.name: [1] if pa.types.is_list(field.type) else None for field in kept}
    row |= {"group_id": "g", "prompt_id": "p", "sample_index": 0, "advantage": 0.5}
    table = table_migrations.forward(pa.Table.from_pylist([row], schema=pa.schema(kept)), "samples", 1, Path("x"))
    assert table.schema == schema
    (read,) = table.to_pylist()
    assert {name: read[name] for name in later} == dict.fromkeys(later)
    assert read["advantage"] == 0.5


def test_rewards_keep_their_sources():
    schema = schema_of("rewards", ("exact", "format"))
    row = dict.fromkeys(schema.names) | {"group_id": "g", "prompt_id": "p", "sample_index": 1, "exact_reward": 1.0}
    table = table_migrations.forward(pa.Table.from_pylist([row], schema=schema), "rewards", 1, Path("x"))
    assert table.schema == schema
    assert table.to_pylist() == [row]


def test_an_older_table_without_a_column_that_must_be_there_is_refused():
    with pytest.raises(CorruptArtifact, match="pairs table of schema 1 without the column label_id"):
        table_migrations.forward(old_pairs().drop_columns(["pair_id"]), "pairs", 1, Path("x"))
