"""A branch begins with another lineage's models and tables where they stand, and knows its parent."""

from pathlib import Path

import pytest

from storage import branching, checkpoints, collection, iterations, lineages, lock, registry, retention
from storage.errors import RecipeConflict, StorageError
from storage.mlflow_client import client
from storage.verification import verify_lineage

RECIPE = {"name": "r", "update": {}, "num_steps": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One database for the module: making it takes seconds."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def parent(store, finish, request):
    """Iterations 0 to 2, registered; gives the name."""
    name = f"from-{abs(hash(request.node.name)) % 10**8}"
    with lock.hold(store, name) as place:
        for iteration in range(3):
            finish(place, iteration, is_registered=True)
    return name


def branched(store, parent, version="2", name="", recipe=RECIPE):
    with lock.hold(store, name or f"{parent}-branch") as place:
        return branching.branch(place, parent, version, recipe)


def test_the_first_record_names_the_parents_models_and_tables_and_copies_no_bytes(store, parent):
    record = branched(store, parent)
    origin = iterations.records(store, parent)[1]
    assert iterations.records(store, f"{parent}-branch") == [record]
    assert iterations.latest_record(store, f"{parent}-branch") == record
    assert (record.policy.uri, record.policy.digest) == (origin.policy.uri, origin.policy.digest)
    assert (record.reward.uri, record.champion, record.start) == (origin.reward.uri, record.policy, record.policy)
    assert (record.policy.version, record.iteration) == ("1", 1)
    assert record.tables["evaluation"] == record.tables["champion_evaluation"] == origin.tables["evaluation"]
    assert record.metrics == {"evaluation/accuracy": 0.5}
    committed = [path.parent.name for path in (store / f"{parent}-branch").glob("iteration-*/**/manifest.json")]
    assert committed == ["record"]
    linked = {path.read_bytes(): path for path in (store / f"{parent}-branch" / "mlflow").rglob("model.safetensors")}
    models = [Path(ref.uri) / "model.safetensors" for ref in (origin.policy, origin.reward)]
    assert all(linked.pop(path.read_bytes()).samefile(path) for path in models)
    assert linked == {}
    assert verify_lineage(store, f"{parent}-branch").faults == ()


def test_the_parent_is_visible_in_the_lineage_and_in_mlflow(store, parent):
    branched(store, parent)
    assert lineages.read_parent(store, f"{parent}-branch") == lineages.Parent(lineage=parent, version="2", iteration=1)
    assert lineages.read_parent(store, parent) is None
    (version,) = registry.versions(store, f"{parent}-branch", "policy")
    assert version.tags["grpo.parent"] == f"models:/{parent}-policy/2"
    assert version.aliases == ("champion", "current")
    page = client(store).get_model_version(f"{parent}-branch-policy", "1").description
    assert page.startswith(f"iteration 1 · branched from {parent}-policy v2")
    assert f"(#/models/{parent}-policy/versions/2)" in page
    mlflow = client(store)
    (run,) = mlflow.search_runs([mlflow.get_experiment_by_name(f"{parent}-branch").experiment_id])
    assert (run.info.status, run.data.tags["grpo.branched_from"]) == ("FINISHED", f"{parent}@2")


def test_the_labels_of_all_earlier_iterations_stay_the_history_of_replay(store, parent):
    from tasks.lineage import label_history

    records = iterations.records(store, parent)
    branched(store, parent, version="3")
    with lock.hold(store, f"{parent}-branch") as place:
        assert label_history.fn(place.at(iteration=3)) == [record.tables["labels"] for record in records]
    twice = branched(store, f"{parent}-branch", version="1", name=f"{parent}-twice")
    with lock.hold(store, f"{parent}-twice") as place:
        assert label_history.fn(place.at(iteration=3)) == [record.tables["labels"] for record in records]
    assert twice.policy.digest == records[2].policy.digest


def test_a_repeat_gives_the_same_record_and_versions(store, parent):
    first = branched(store, parent)
    assert branched(store, parent) == first
    assert len(registry.versions(store, f"{parent}-branch", "policy")) == 1


def die_before_the_record(store, parent, monkeypatch):
    def dies(*_):
        raise OSError("out of power")

    with monkeypatch.context() as broken:
        broken.setattr(iterations, "publish_record", dies)
        with pytest.raises(OSError, match="out of power"):
            branched(store, parent)


def test_a_branch_that_was_interrupted_before_its_record_is_finished_by_a_repeat(store, parent, monkeypatch):
    die_before_the_record(store, parent, monkeypatch)
    assert iterations.records(store, f"{parent}-branch") == []
    record = branched(store, parent)
    assert record.policy.version == "1"
    assert len(registry.versions(store, f"{parent}-branch", "policy")) == 1


def test_a_name_that_is_taken_and_another_recipe_are_refused(store, parent):
    with pytest.raises(StorageError, match="is there already"):
        branched(store, parent, version="1", name=parent)
    branched(store, parent)
    with pytest.raises(StorageError, match="is there already"):
        branched(store, parent, version="1")


def test_an_interrupted_branch_is_not_finished_with_another_recipe(store, parent, monkeypatch):
    die_before_the_record(store, parent, monkeypatch)
    with pytest.raises(RecipeConflict, match="num_steps: recorded 1, asked 2"):
        branched(store, parent, recipe={**RECIPE, "num_steps": 2})


def test_a_version_that_is_not_there_is_refused_with_those_that_are(store, parent):
    with pytest.raises(StorageError, match=r"has no policy v9; there are: v1, v2, v3"):
        branched(store, parent, version="9")
    assert f"{parent}-branch" not in lineages.list_lineages(store)


def test_a_version_whose_weights_were_removed_is_refused_and_a_branch_keeps_its_own(store, parent):
    branched(store, parent, version="1")
    with lock.hold(store, parent) as place:
        plan = retention.plan(store, parent, 1)
        assert {each.name for each in plan.removed} == {f"{parent}/iteration-0001/reward"}
        collection.collect(place, plan)
        checkpoints.prune(place, iterations.records(store, parent)[1].policy)
    assert verify_lineage(store, f"{parent}-branch").faults == ()
    with pytest.raises(StorageError, match=r"v2 of .* can not be branched from: the weights of .* were removed"):
        branched(store, parent, name=f"{parent}-again")


def test_a_version_with_changed_bytes_is_refused(store, parent):
    path = Path(iterations.records(store, parent)[1].policy.uri) / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(bytes(data))
    checkpoints._verified.clear()
    with pytest.raises(StorageError, match="has sha256"):
        branched(store, parent)
    assert f"{parent}-branch" not in lineages.list_lineages(store)


def test_a_branch_without_its_record_is_not_begun_from_nothing(store, parent, monkeypatch):
    from tasks.lineage import last_record

    die_before_the_record(store, parent, monkeypatch)
    refused = pytest.raises(StorageError, match=rf"finish it first: igrpo branch {parent}@2 {parent}-branch")
    with lock.hold(store, f"{parent}-branch") as place, refused:
        last_record.fn(place)
