"""What a lineage remembers: recipe, request, records."""

import json
from pathlib import Path

import pytest

from storage import checkpoints, lineages, tables
from storage.errors import LostLock, RecipeConflict, StorageError, UnknownLineage
from storage.home import store_root
from storage.lineages import IterationRecord
from storage.manifest import Provenance

RECIPE = {
    "name": "r",
    "seed": 1,
    "num_iterations": 3,
    "machine": {"num_threads": 1},
    "update": {"kl_beta": 0.1, "clip": 0.2},
}


def test_a_lineage_keeps_its_recipe_and_names_every_key_that_differs(place):
    lineages.record_recipe(place, RECIPE)
    lineages.record_recipe(place, RECIPE)
    with pytest.raises(RecipeConflict) as error:
        lineages.record_recipe(place, {**RECIPE, "seed": 2, "update": {"kl_beta": 0.2, "other": 1}})
    for line in (
        "seed: recorded 1, asked 2",
        "update.kl_beta: recorded 0.1",
        "update.clip",
        "update.other",
        "--lineage",
    ):
        assert line in str(error.value)


def test_how_much_to_run_and_on_what_may_change(place):
    lineages.record_recipe(place, RECIPE)
    lineages.record_recipe(place, {**RECIPE, "num_iterations": 9, "machine": {"num_threads": 4}})
    assert lineages.read_recipe(Path(place.root), "lineage") == RECIPE


def test_an_unknown_lineage_names_those_that_exist(place):
    lineages.record_recipe(place, RECIPE)
    with pytest.raises(UnknownLineage, match="there are: lineage"):
        lineages.read_recipe(Path(place.root), "other")


def test_the_same_request_after_a_kill_ends_where_it_was_meant_to(place):
    assert lineages.target_iteration(place, 0, 3) == 3
    assert lineages.target_iteration(place, 1, 3) == 3  # killed in iteration 2, run again
    assert lineages.target_iteration(place, 3, 3) == 3  # killed after the last record, before the end
    lineages.finish_request(place)
    assert lineages.target_iteration(place, 3, 3) == 6  # finished: the same command asks for three more
    assert lineages.target_iteration(place, 4, 3) == 6
    assert lineages.target_iteration(place, 4, 1) == 5  # another request replaces it
    assert lineages.target_iteration(place, 5, 3) == 8


def test_a_run_without_the_lineage_may_not_ask(place):
    (place.lineage_folder / "holder.json").write_text(json.dumps({"token": 99}))
    with pytest.raises(LostLock):
        lineages.target_iteration(place, 0, 3)


def record(place, iteration):
    here = place.at(iteration=iteration)
    write = lambda folder: (folder / "model.safetensors").write_bytes(b"w%d" % iteration)  # noqa: E731
    policy = checkpoints.publish(here, "policy", write, Provenance(stage="policy", inputs={}))
    reward = checkpoints.publish(here, "reward", write, Provenance(stage="reward", inputs={}))
    pairs = tables.publish(here, "pairs", [], Provenance(stage="pairs", inputs={}))
    made = IterationRecord(
        iteration=iteration, policy=policy, reference=policy, reward=reward, champion=policy,
        tables={"pairs": pairs}, metrics={"evaluation/accuracy": 0.5}, seconds=1.0,
    )  # fmt: skip
    return lineages.publish_record(here, made, reward)


def numbers(place):
    return [each.iteration for each in lineages.records(Path(place.root), "lineage")]


def test_records_come_back_in_numeric_order(place):
    made = [record(place, iteration) for iteration in range(12)]
    assert lineages.records(Path(place.root), "lineage") == made
    assert lineages.latest_record(Path(place.root), "lineage").iteration == 11


def test_the_newest_is_the_newest_complete_one(place):
    for iteration in range(3):
        record(place, iteration)
    for name in (
        "iteration-0009",
        "iteration-0003/.tmp-record-1",
        "iteration-0003/step-001",
        "notes",
        ".corrupt-iteration-0004",
    ):
        (place.lineage_folder / name).mkdir(parents=True)
    assert numbers(place) == [0, 1, 2]


@pytest.mark.parametrize("file", ["record/record.json", "policy/model.safetensors"])
def test_an_iteration_with_a_byte_missing_does_not_count_and_is_named(place, file, caplog):
    for iteration in range(3):
        record(place, iteration)
    path = place.lineage_folder / "iteration-0002" / file
    path.write_bytes(path.read_bytes()[:-1])
    assert numbers(place) == [0, 1]
    assert "iteration 2 of lineage does not count" in caplog.text


def test_what_comes_after_a_damaged_iteration_does_not_count_either(place):
    for iteration in range(4):
        record(place, iteration)
    (place.lineage_folder / "iteration-0001" / "record" / "record.json").write_text("{}")
    assert numbers(place) == [0]


def test_the_summary_holds_every_promised_key(place):
    lineages.record_recipe(place, RECIPE)
    for iteration in range(2):
        made = record(place, iteration)
        versioned = made.policy.model_copy(update={"version": "1"})
        lineages_record = made.model_copy(update={"policy": versioned, "reward": versioned, "champion": versioned})
        path = place.at(iteration=iteration).folder("record")
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
        lineages.publish_record(place.at(iteration=iteration), lineages_record, made.reward)
    summary = lineages.summary_of(Path(place.root), "lineage")
    assert (summary["lineage"], summary["recipe"], summary["baseline_accuracy"]) == ("lineage", "r", 0.5)
    promised = {
        "iteration", "reward_mean", "accuracy_before", "accuracy_after", "reward_model_accuracy_before",
        "reward_model_accuracy_after", "num_fresh", "num_replayed", "policy_version", "reward_version",
        "champion_version", "seconds",
    }  # fmt: skip
    assert promised <= summary["iterations"][0].keys()
    lineages.write_summary(place, summary)
    assert lineages.read_summary(Path(place.root), "lineage") == summary


def test_a_recipe_is_flattened_to_dotted_keys():
    flat = lineages.flattened({"a": {"b": 1, "c": {"d": "x"}}, "e": [1, 2], "f": {}})
    assert flat == {"a.b": "1", "a.c.d": "x", "e": "[1, 2]", "f": "{}"}


def test_the_store_is_the_named_folder_or_runs(tmp_path):
    assert store_root({}, tmp_path) == tmp_path / "runs"
    assert store_root({"IGRPO_HOME": str(tmp_path / "x")}, Path("/")) == tmp_path / "x"
    assert store_root({"IGRPO_HOME": "y"}, tmp_path) == tmp_path / "y"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="IGRPO_HOME"):
        store_root({"IGRPO_HOME": str(tmp_path / "file")}, tmp_path)
