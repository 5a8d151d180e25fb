"""What a lineage remembers of its recipe and of what was asked; where the store stands."""

import json
import os
from pathlib import Path

import pytest

from storage import lineages, summaries
from storage.errors import CorruptArtifact, LostLock, RecipeConflict, StorageError, UnknownFormat, UnknownLineage
from storage.home import store_root

RECIPE = {
    "name": "r",
    "seed": 1,
    "num_iterations": 3,
    "machine": {"num_threads": 1},
    "update": {"kl_beta": 0.1, "clip": 0.2},
    "scoring": {"verifiers": [{"kind": "exact", "weight": 1.0}]},
}


def test_the_recipe_of_a_new_lineage_is_recorded_with_its_name_time_and_code(place):
    lineages.record_recipe(place, RECIPE)
    record = json.loads((place.lineage_folder / "lineage.json").read_text())
    assert record.keys() == {"format", "name", "recipe", "created_at", "code"}
    assert (record["format"], record["name"], record["recipe"]) == (2, "lineage", RECIPE)
    assert record["code"].keys() == {"version", "commit"}


def test_a_lineage_keeps_its_recipe_and_names_every_key_that_differs(place):
    lineages.record_recipe(place, RECIPE)
    before = (place.lineage_folder / "lineage.json").read_bytes()
    lineages.record_recipe(place, RECIPE)
    other = {
        **RECIPE,
        "seed": 2,
        "update": {"kl_beta": 0.2, "other": 1},
        "scoring": {"verifiers": [{"kind": "exact", "weight": 0.5}]},
    }
    with pytest.raises(RecipeConflict) as error:
        lineages.record_recipe(place, other)
    lines = str(error.value).splitlines()
    assert [line.strip() for line in lines[1:-1]] == [
        "scoring.verifiers[0].weight: recorded 1.0, asked 0.5",
        "seed: recorded 1, asked 2",
        "update.clip: recorded 0.2, asked nothing",
        "update.kl_beta: recorded 0.1, asked 0.2",
        "update.other: recorded nothing, asked 1",
    ]
    assert "--lineage NAME" in lines[-1]
    assert (place.lineage_folder / "lineage.json").read_bytes() == before


def test_how_much_to_run_and_on_what_may_change(place):
    lineages.record_recipe(place, RECIPE)
    lineages.record_recipe(place, {**RECIPE, "num_iterations": 9, "machine": {"num_threads": 4}})
    assert lineages.read_recipe(Path(place.root), "lineage") == RECIPE


def test_where_an_engine_runs_may_change_and_what_it_samples_may_not(place):
    def recipe(**engine):
        return {**RECIPE, "rollout": {"engine": {"kind": "vllm", "dtype": "float32", "server": {"urls": []}, **engine}}}

    lineages.record_recipe(place, recipe())
    lineages.record_recipe(place, recipe(server={"urls": ["http://10.0.0.5:8000"]}))
    assert lineages.read_recipe(Path(place.root), "lineage") == recipe()
    with pytest.raises(RecipeConflict, match=r"rollout.engine.dtype: recorded 'float32', asked 'bfloat16'"):
        lineages.record_recipe(place, recipe(dtype="bfloat16"))


def test_only_the_top_level_may_change(place):
    lineages.record_recipe(place, {**RECIPE, "update": {"num_iterations": 1}})
    with pytest.raises(RecipeConflict, match=r"update.num_iterations: recorded 1, asked 2"):
        lineages.record_recipe(place, {**RECIPE, "update": {"num_iterations": 2}})


def test_an_unknown_lineage_names_those_that_exist(place):
    lineages.record_recipe(place, RECIPE)
    (Path(place.root) / "prefect").mkdir()
    assert lineages.list_lineages(Path(place.root)) == ["lineage"]
    with pytest.raises(UnknownLineage, match="there are: lineage"):
        lineages.read_recipe(Path(place.root), "other")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", CorruptArtifact, "lineage.json is not JSON"),
        ("[]", CorruptArtifact, "holds a list"),
        ('{"format": 1}', CorruptArtifact, "holds no recipe"),
        ('{"format": 2}', CorruptArtifact, "holds no recipe"),
        ('{"format": 3, "recipe": {}}', UnknownFormat, "has format 3, this code reads 1 to 2; use the version of"),
        ('{"format": "2", "recipe": {}}', UnknownFormat, "has format '2'"),
    ],
)
def test_a_recipe_file_that_can_not_be_read_is_named_and_never_replaced(place, text, error, message):
    path = place.lineage_folder / "lineage.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        lineages.record_recipe(place, RECIPE)
    assert path.read_text() == text


def target(place, completed, num_iterations):
    return lineages.target_iteration(place, completed, num_iterations)


def test_the_same_command_after_a_kill_ends_where_it_was_meant_to(place):
    assert target(place, 4, 3) == 7
    assert json.loads((place.lineage_folder / "request.json").read_text()) == {
        "num_iterations": 3,
        "start": 4,
        "target": 7,
    }
    for completed in (4, 5, 6):
        assert target(place, completed, 3) == 7


def test_a_run_that_died_after_its_last_iteration_has_nothing_left_to_run(place):
    assert target(place, 0, 3) == 3
    assert target(place, 3, 3) == 3


def test_a_request_that_was_closed_is_followed_by_a_new_one(place):
    assert target(place, 0, 3) == 3
    lineages.close_request(place)
    assert target(place, 3, 3) == 6


def test_another_number_replaces_an_open_request(place):
    assert target(place, 0, 3) == 3
    assert target(place, 1, 1) == 2
    assert target(place, 1, 3) == 4


def test_an_open_request_that_was_overtaken_is_replaced(place):
    assert target(place, 0, 3) == 3
    assert target(place, 5, 3) == 8


def test_a_request_whose_first_iterations_were_lost_still_ends_where_it_was_meant_to(place):
    assert target(place, 4, 3) == 7
    assert target(place, 2, 3) == 7


@pytest.mark.parametrize("number", [0, -1])
def test_no_iterations_can_not_be_asked_for(place, number):
    with pytest.raises(ValueError, match=f"num_iterations is {number}"):
        target(place, 0, number)


@pytest.mark.parametrize("text", ["", "{}", '{"num_iterations": 3, "target": "x", "start": 0}'])
def test_a_damaged_request_is_named_with_the_cure(place, text):
    (place.lineage_folder / "request.json").write_text(text)
    with pytest.raises(CorruptArtifact, match=r"request.json .*delete it"):
        target(place, 0, 3)


def test_a_request_is_not_closed_by_a_run_that_lost_the_lineage(place):
    target(place, 0, 3)
    (place.lineage_folder / "holder.json").write_text(json.dumps({"token": place.token + 1}))
    with pytest.raises(LostLock):
        lineages.close_request(place)
    assert (place.lineage_folder / "request.json").is_file()


def test_a_summary_comes_back_as_it_was_written_and_is_empty_before(place):
    root = Path(place.root)
    assert summaries.read_summary(root, "lineage") == {}
    for summary in ({"lineage": "정답", "iterations": [{"x": None}]}, {"lineage": "b"}):
        path = summaries.write_summary(place, summary)
        assert path == place.lineage_folder / "summary.json"
        assert json.loads(path.read_text(encoding="utf-8")) == summary == summaries.read_summary(root, "lineage")


def test_a_recipe_is_flattened_to_dotted_keys():
    flat = lineages.flattened({"a": {"b": 1, "c": {"d": "x"}}, "e": [1, 2], "f": {}})
    assert flat == {"a.b": "1", "a.c.d": "x", "e": "[1, 2]", "f": "{}"}


def test_the_store_is_the_named_folder_or_runs(tmp_path, monkeypatch):
    assert store_root({}, tmp_path) == tmp_path / "runs"
    assert store_root({"IGRPO_HOME": ""}, tmp_path) == tmp_path / "runs"
    assert store_root({"IGRPO_HOME": str(tmp_path / "x")}, Path("/")) == tmp_path / "x"
    assert store_root({"IGRPO_HOME": "y/z"}, tmp_path) == tmp_path / "y" / "z"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store_root({"IGRPO_HOME": "~/s"}, Path("/")) == tmp_path / "home" / "s"
    (tmp_path / "link").symlink_to(tmp_path / "x")
    assert store_root({"IGRPO_HOME": "link"}, tmp_path) == tmp_path / "x"


@pytest.mark.parametrize(
    ("home", "message"),
    [
        ("file", "is a file"),
        ("file/inner", "can not be made"),
        ("/proc/store", "can not be made"),
        ("~nobody-of-that-name/x", "no home folder"),
    ],
)
def test_a_store_that_can_not_be_is_refused_with_the_cure(tmp_path, home, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=rf"{message}.*set"):
        store_root({"IGRPO_HOME": home}, tmp_path)
    assert (tmp_path / "file").read_text() == ""


def test_a_store_that_can_not_be_written_to_is_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(StorageError, match=r"can not be written to; set IGRPO_HOME"):
        store_root({}, tmp_path)
