"""Weights go for good, their lineage stays: with MLflow's hard links, under the lock, again after an interruption."""

import json
import os
import socket
from pathlib import Path

import pytest

from storage import checkpoints, collection, iterations, lock, registry, retention
from storage.errors import LineageBusy, LostLock, PrunedCheckpoint, StorageError
from storage.mlflow_client import client
from storage.store_lock import hold_store
from storage.verification import verify_lineage


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One database for the module: making it takes seconds."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def lineage(store, finish, request):
    """Iterations 0 to 3 of a lineage of its own, registered."""
    with lock.hold(store, request.node.name[:60].replace("[", "-").replace("]", "")) as place:
        for iteration in range(4):
            finish(place, iteration, is_registered=True)
        yield place


def planned(place, keep_last=1):
    return retention.plan(Path(place.root), place.lineage, keep_last)


def used_bytes(folder):
    """What the disk holds for a folder: each inode once."""
    files = {
        (path.stat().st_dev, path.stat().st_ino): path.stat().st_size for path in folder.rglob("*") if path.is_file()
    }
    return sum(files.values())


def weights_bytes(root, plan):
    return sum(
        path.stat().st_size
        for each in plan.removed
        for path in (root / each.name).rglob("*")
        if path.is_file() and path.name != "manifest.json"
    )


def test_the_disk_gets_back_what_is_said_and_everything_else_stays_whole(lineage):
    root, plan = Path(lineage.root), planned(lineage)
    promised = weights_bytes(root, plan)
    assert promised == sum(each.num_bytes for each in plan.removed) > 0
    weights = root / plan.removed[0].name / "model.safetensors"
    assert weights.stat().st_nlink == 2  # MLflow's name of the same file
    marks = len('"pruned": true') - len('"pruned": false')  # of each tombstone
    before = used_bytes(lineage.lineage_folder)
    assert collection.collect(lineage, plan) == promised
    assert before - used_bytes(lineage.lineage_folder) == promised - marks * len(plan.removed)
    found = verify_lineage(root, lineage.lineage)
    assert (found.faults, found.num_pruned) == ((), len(plan.removed))
    assert len(iterations.records(root, lineage.lineage)) == 4
    newest = iterations.latest_record(root, lineage.lineage)
    assert newest is not None
    assert newest.iteration == 3
    checkpoints._verified.clear()
    assert checkpoints.open_folder(newest.policy).is_dir()
    oldest = iterations.records(root, lineage.lineage)[0]
    with pytest.raises(PrunedCheckpoint):
        checkpoints.open_folder(oldest.policy)


def test_the_version_in_mlflow_says_that_its_weights_were_removed(lineage):
    collection.collect(lineage, planned(lineage))
    name = registry.registered_name(lineage.lineage, "policy")
    versions = {
        each.version: dict(each.tags) for each in client(Path(lineage.root)).search_model_versions(f"name = '{name}'")
    }
    assert versions[1]["grpo.weights"].startswith("removed by igrpo gc at 20")
    assert "grpo.weights" not in versions[4]


def test_what_an_alias_points_at_stays(lineage):
    registry.set_alias(lineage, iterations.records(Path(lineage.root), lineage.lineage)[0].policy, "shown-to-bob")
    plan = planned(lineage)
    (kept,) = [each for each in plan.kept if each.name.endswith("iteration-0000/policy")]
    assert kept.reasons == ("alias shown-to-bob (v1)",)


def test_where_the_loops_own_aliases_point_is_read_from_the_records_not_from_mlflow(lineage):
    """MLflow may not have been told yet: a champion that it still shows is not kept for that."""
    first = iterations.records(Path(lineage.root), lineage.lineage)[0].policy
    before = retention.plan(Path(lineage.root), lineage.lineage, 1)
    registry.set_alias(lineage, first, "champion")
    assert retention.plan(Path(lineage.root), lineage.lineage, 1) == before


def test_nothing_goes_while_mlflow_can_not_be_asked_for_the_aliases_of_people(lineage, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        dead = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead)
    with pytest.raises(StorageError, match=rf"{dead} does not answer.*nothing may go; start MLflow"):
        retention.plan(Path(lineage.root), lineage.lineage, 1)


def test_collecting_again_finds_nothing_and_a_plan_of_before_does_no_harm(lineage):
    plan = planned(lineage)
    assert collection.collect(lineage, plan) > 0
    assert planned(lineage).removed == ()
    assert collection.collect(lineage, plan) == 0


def test_an_interrupted_collection_is_finished_by_the_next(lineage, monkeypatch):
    plan = planned(lineage)
    prune, calls = checkpoints.prune, []

    def dies(place, ref):
        if len(calls) == 2:
            raise OSError("out of power")
        calls.append(ref)
        return prune(place, ref)

    monkeypatch.setattr(checkpoints, "prune", dies)
    with pytest.raises(OSError, match="out of power"):
        collection.collect(lineage, plan)
    monkeypatch.undo()
    left = planned(lineage)
    assert len(left.removed) == len(plan.removed) - 2
    collection.collect(lineage, left)
    assert planned(lineage).removed == ()
    assert verify_lineage(Path(lineage.root), lineage.lineage).faults == ()


def test_a_file_that_someone_else_has_a_name_for_frees_nothing(lineage, tmp_path):
    root, plan = Path(lineage.root), planned(lineage)
    weights = root / plan.removed[0].name / "model.safetensors"
    size = weights.stat().st_size
    os.link(weights, root / "kept-by-someone")
    assert collection.collect(lineage, plan) == sum(each.num_bytes for each in plan.removed) - size
    assert (root / "kept-by-someone").stat().st_size == size
    (root / "kept-by-someone").unlink()


def test_whoever_lost_the_lineage_removes_nothing(lineage):
    plan = planned(lineage)
    (lineage.lineage_folder / "holder.json").write_text(json.dumps({"token": lineage.token + 1}))
    with pytest.raises(LostLock):
        collection.collect(lineage, plan)
    assert planned(lineage) == plan


def test_a_plan_of_another_lineage_is_refused(lineage):
    with pytest.raises(ValueError, match="the plan is of lineage 'other'"):
        collection.collect(lineage, planned(lineage).model_copy(update={"lineage": "other"}))


def test_branching_and_collecting_exclude_each_other(tmp_path):
    with hold_store(tmp_path), pytest.raises(LineageBusy, match="igrpo branch or igrpo gc"), hold_store(tmp_path):
        pass
    with hold_store(tmp_path):
        pass
