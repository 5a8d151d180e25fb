"""A store on an object store: what counts stands there, whatever becomes of the folder in which it is worked on."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from storage import (
    checkpoints,
    commits,
    decisions,
    lineages,
    lock,
    object_lock,
    object_store,
    summaries,
    tables,
    working_copy,
)
from storage.errors import CorruptArtifact, LineageBusy, LostLock, StorageError
from storage.home import store_root
from storage.manifest import Provenance
from storage.object_store import Refused, parse
from tests.object_server import BUCKET, s3_server

ROW = {
    "prompt_id": "p",
    "num_samples": 1,
    "num_scored": 1,
    "num_correct": 1,
    "pass_at_1": 1.0,
    "greedy_correct": True,
    "reward_model_mean": None,
}
TABLE = Provenance(stage="evaluation", inputs={})
POLICY = Provenance(stage="policy", inputs={})


@pytest.fixture(scope="module")
def server():
    with s3_server() as env:
        yield env


@pytest.fixture
def url(server, request):
    return f"s3://{BUCKET}/{abs(hash(request.node.nodeid))}"


def copy_at(url, cache):
    return store_root({"IGRPO_HOME": url, "IGRPO_CACHE": str(cache)}, Path.cwd())


@pytest.fixture
def root(url, tmp_path):
    return copy_at(url, tmp_path / "cache")


def keys(root):
    return sorted(working_copy.store_behind(root).list(""))


def write_policy(folder):
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "trainer").mkdir()
    (folder / "trainer" / "state.json").write_bytes(b"{}")


def test_a_commit_is_a_set_of_objects_with_the_manifest_among_them(root):
    with lock.hold(root, "line") as place:
        checkpoints.publish(place, "policy", write_policy, POLICY)
    base = "line/iteration-0000/policy"
    assert keys(root) == [
        *(f"{base}/{name}" for name in ("manifest.json", "model.safetensors", "trainer/state.json")),
        "line/lock.json",
        "store.json",
    ]


def test_an_empty_working_copy_has_everything_again(root):
    with lock.hold(root, "line") as place:
        lineages.record_recipe(place, {"name": "r", "seed": 3})
        summaries.write_summary(place, {"lineage": "line"})
        policy = checkpoints.publish(place, "policy", write_policy, POLICY)
        table = tables.publish(place, "evaluation", [ROW], TABLE)
    (note := root / "remote.json").rename(root.parent / "kept.json")
    shutil.rmtree(root)
    root.mkdir()
    (root.parent / "kept.json").rename(note)
    with lock.hold(root, "line") as again:
        assert again.token > place.token
        assert lineages.read_recipe(root, "line") == {"name": "r", "seed": 3}
        assert summaries.read_summary(root, "line") == {"lineage": "line"}
        assert not (Path(policy.uri) / "model.safetensors").exists()
        assert checkpoints.find(again, "policy", POLICY) == policy
        checkpoints._verified.clear()
        assert (checkpoints.open_folder(policy) / "trainer" / "state.json").read_bytes() == b"{}"
        assert tables.read(table) == [ROW]


def test_what_another_lineage_made_comes_when_it_is_read(root):
    with lock.hold(root, "parent") as place:
        policy = checkpoints.publish(place, "policy", write_policy, POLICY)
    shutil.rmtree(root / "parent")
    with lock.hold(root, "branch"):
        checkpoints._verified.clear()
        assert (checkpoints.open_folder(policy) / "model.safetensors").read_bytes() == b"weights"


def test_a_changed_object_is_refused_by_its_digest_and_named(root):
    with lock.hold(root, "line") as place:
        policy = checkpoints.publish(place, "policy", write_policy, POLICY)
        (Path(policy.uri) / "model.safetensors").unlink()
        working_copy.store_behind(root).put("line/iteration-0000/policy/model.safetensors", b"weighty")
        checkpoints._verified.clear()
        with pytest.raises(CorruptArtifact, match=r"policy/model.safetensors has sha256 .*was committed"):
            checkpoints.open_folder(policy)
        assert not (Path(policy.uri) / "model.safetensors").exists()


def test_a_stage_of_which_an_object_is_gone_is_made_again(root):
    with lock.hold(root, "line") as place:
        policy = checkpoints.publish(place, "policy", write_policy, POLICY)
        (Path(policy.uri) / "model.safetensors").unlink()
        working_copy.store_behind(root).delete("line/iteration-0000/policy/model.safetensors")
        assert checkpoints.find(place, "policy", POLICY) is None
        assert "line/iteration-0000/policy/manifest.json" not in keys(root)
        assert checkpoints.publish(place, "policy", write_policy, POLICY) == policy


class Unplugged(Exception):
    pass


def unplug(*_):
    raise Unplugged


@pytest.mark.parametrize("instant", ["before the manifest", "after the manifest"])
def test_a_run_that_dies_while_it_sends_leaves_all_or_nothing(root, monkeypatch, instant):
    with monkeypatch.context() as patch, lock.hold(root, "line") as place:
        if instant == "before the manifest":
            patch.setattr(working_copy, "send_manifest", unplug)
        else:
            patch.setattr(commits.files, "commit_folder", unplug)
        with pytest.raises(Unplugged):
            checkpoints.publish(place, "policy", write_policy, POLICY)
        is_done = (
            checkpoints.find(place, "policy", POLICY) is not None
        )  # before the next run: a retry of the stage asks so
        assert is_done == (instant == "after the manifest")
    assert "line/iteration-0000/policy/model.safetensors" in keys(root)
    with lock.hold(root, "line") as place:
        found = checkpoints.find(place, "policy", POLICY)
        assert (found is None) == (instant == "before the manifest")
        made = found or checkpoints.publish(place, "policy", write_policy, POLICY)
        checkpoints._verified.clear()
        assert (checkpoints.open_folder(made) / "model.safetensors").read_bytes() == b"weights"


def test_what_the_store_does_not_hold_does_not_count_here(root):
    with lock.hold(root, "line") as place:
        policy = checkpoints.publish(place, "policy", write_policy, POLICY)
        lineages.target_iteration(place, 0, 3)
    store = working_copy.store_behind(root)
    store.delete("line/iteration-0000/policy/manifest.json")
    store.delete("line/request.json")
    with lock.hold(root, "line") as place:
        assert checkpoints.find(place, "policy", POLICY) is None
        assert lineages.target_iteration(place, 2, 3) == 5
    assert [path.name[:16] for path in Path(policy.uri).parent.iterdir()] == [".corrupt-policy-"]


def test_pruned_weights_leave_the_bucket_and_their_record_stays(root):
    with lock.hold(root, "line") as place:
        policy = checkpoints.publish(place, "policy", write_policy, POLICY)
        assert checkpoints.prune(place, policy) == 9
    assert [key for key in keys(root) if "policy" in key] == ["line/iteration-0000/policy/manifest.json"]
    assert json.loads(working_copy.store_behind(root).get("line/iteration-0000/policy/manifest.json").data)["pruned"]


def test_a_request_that_was_met_is_gone_from_the_bucket(root):
    with lock.hold(root, "line") as place:
        lineages.target_iteration(place, 0, 3)
        assert "line/request.json" in keys(root)
        lineages.close_request(place)
    assert "line/request.json" not in keys(root)


def test_a_second_copy_is_refused_while_the_first_holds_and_told_until_when(root, monkeypatch):
    with lock.hold(root, "line"):
        monkeypatch.setattr(working_copy, "copy_of", lambda root: "another")
        (root / "line" / "lock").unlink()  # another machine does not see the lock of this one's kernel
        with (
            pytest.raises(
                LineageBusy, match=r"'line' in s3://models/\d+ is held by process \d+ on .* is free in (60|61) s"
            ),
            lock.hold(root, "line"),
        ):
            pass
        with pytest.raises(LineageBusy, match="is held by process"):
            object_lock.probe(root, "line")
    with lock.hold(root, "line"):  # given back: nobody has to wait
        pass


def takeover(root, monkeypatch):
    """Another machine takes the lock whose owner is thought dead."""
    store = working_copy.store_behind(root)
    body = json.loads(store.get("line/lock.json").data)
    store.put("line/lock.json", json.dumps({**body, "token": body["token"] + 1, "copy": "another"}).encode())


def test_a_run_whose_lock_was_taken_over_commits_nothing_more(root, monkeypatch):
    def write(folder):
        write_policy(folder)
        takeover(root, monkeypatch)

    with lock.hold(root, "line") as place:
        with pytest.raises(LostLock, match=f"token {place.token + 1}, this one has {place.token}"):
            checkpoints.publish(place, "policy", write, POLICY)
        with pytest.raises(LostLock):
            lineages.record_recipe(place, {"name": "r"})
    assert "line/iteration-0000/policy/manifest.json" not in keys(root)
    assert "line/lineage.json" not in keys(root)
    assert json.loads(working_copy.store_behind(root).get("line/lock.json").data)["copy"] == "another"


def test_two_commits_of_one_stage_are_one(root):
    with lock.hold(root, "line") as place:
        working_copy.store_behind(root).put("line/iteration-0000/policy/manifest.json", b"{}")
        with pytest.raises(LostLock, match="another run made it"):
            checkpoints.publish(place, "policy", write_policy, POLICY)
        assert not place.folder("policy").exists()


def test_a_dead_owners_lock_is_taken_at_once_here_and_after_its_time_elsewhere(root, monkeypatch):
    monkeypatch.setattr(object_lock, "_release", lambda held: None)  # killed: it gives nothing back
    with lock.hold(root, "line") as dead:
        pass
    with lock.hold(root, "line") as here:
        assert here.token > dead.token
    monkeypatch.setattr(working_copy, "copy_of", lambda root: "another")
    with pytest.raises(LineageBusy), lock.hold(root, "line"):
        pass
    plain = object_store.ObjectStore.get
    monkeypatch.setattr(object_store.ObjectStore, "get", lambda store, key: aged(plain(store, key), 62))
    with lock.hold(root, "line") as there:
        assert there.token > here.token


def aged(found, seconds):
    return found and object_store.Found(found.data, found.etag, found.age + seconds)


@pytest.mark.parametrize(("age", "left"), [(0, 61), (60, 1), (61, 0), (70, 0)])
def test_a_lock_stands_its_seconds_and_the_one_that_ages_are_rounded_by(age, left):
    body = {"token": 1, "seconds": 60.0, "copy": "c"}
    assert object_lock.seconds_left(object_store.Found(json.dumps(body).encode(), "e", age)) == left
    freed = json.dumps({**body, "is_free": True}).encode()
    assert object_lock.seconds_left(object_store.Found(freed, "e", 0)) == 0


def test_the_lock_is_renewed_while_the_run_computes(root, monkeypatch):
    monkeypatch.setenv("IGRPO_LOCK_SECONDS", "3")
    with lock.hold(root, "line"):
        store = working_copy.store_behind(root)
        first = json.loads(store.get("line/lock.json").data)["beat"]
        object_lock._held[str(root), "line"].ended.wait(1.6)
        assert json.loads(store.get("line/lock.json").data)["beat"] == first + 1


def test_a_renewal_whose_answer_was_lost_is_no_loss(root):
    with lock.hold(root, "line") as place:
        held = object_lock._held[str(root), "line"]
        held.store.put_over(held.key, held.data(), held.etag)  # written, but this process never heard of it
        lock.require_token(place)


@pytest.mark.parametrize("given", ["2.9", "nan", "inf", "soon", ""])
def test_a_lock_time_that_is_none_is_refused(monkeypatch, given):
    monkeypatch.setenv("IGRPO_LOCK_SECONDS", given)
    with pytest.raises(StorageError, match="IGRPO_LOCK_SECONDS"):
        object_lock.lock_seconds()


def test_a_put_that_was_sent_twice_is_taken_for_one(root):
    store = working_copy.store_behind(root)
    etag = store.put_new("a", b"1")
    assert store.put_new("a", b"1") == etag
    with pytest.raises(Refused):
        store.put_new("a", b"2")
    second = store.put_over("a", b"2", etag)
    assert store.put_over("a", b"2", etag) == second
    with pytest.raises(Refused):
        store.put_over("a", b"3", etag)
    assert store.get("a").data == b"2"


def test_a_server_without_conditional_puts_is_refused(root, monkeypatch):
    monkeypatch.setattr(object_store.ObjectStore, "put_new", lambda store, key, data: store.put(key, data))
    with pytest.raises(StorageError, match="ignores If-None-Match"), lock.hold(root, "line"):
        pass


def test_a_machine_that_would_work_under_another_path_is_told_which(root, url, tmp_path):
    with lock.hold(root, "line"):
        pass
    other = copy_at(url, tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=f"Set IGRPO_CACHE to {tmp_path / 'cache'} here"), lock.hold(other, "line"):
        pass


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gs://bucket/x", "without the conditional put"),
        ("memory://x", "without the conditional put"),
        ("s3://key:secret-word@bucket/x", "holds credentials"),
        ("s3:///x", "is not s3://BUCKET/PREFIX"),
        ("s3://bucket/../x", "is not s3://BUCKET/PREFIX"),
        ("s3://bucket/x?versionId=1", "is not s3://BUCKET/PREFIX"),
    ],
)
def test_an_address_that_can_not_be_a_store_is_refused(url, said):
    with pytest.raises(StorageError, match=said) as caught:
        parse(url)
    assert "secret-word" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_named_without_secrets(server, tmp_path):
    root = copy_at("s3://no-such-bucket/x", tmp_path)
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/x/.*NoSuchBucket") as caught, lock.hold(root, "line"):
        pass
    assert server["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)


@pytest.mark.parametrize(
    "key", ["line/../../outside/manifest.json", "line//x/manifest.json", "line/.tmp-x/manifest.json"]
)
def test_an_object_whose_name_leads_elsewhere_is_refused(root, key):
    with lock.hold(root, "line"):
        pass
    store = working_copy.store_behind(root)
    store.put(key, b"{}")
    with pytest.raises(StorageError, match="has no name of ours"), lock.hold(root, "line"):
        pass
    store.delete(key)


def test_a_decision_is_sent_and_a_rollback_forgets_what_was_begun(root, tmp_path):
    with lock.hold(root, "line") as place:
        policy = checkpoints.publish(place.at(iteration=1), "policy", write_policy, POLICY)
        table = tables.publish(place, "evaluation", [ROW], TABLE)
        chosen = type("Record", (), {"policy": policy, "tables": {"evaluation": table}, "iteration": 0})()
        decisions.take(place, "rollback", chosen, chosen, "worse", "me")
    assert "line/decisions/0001.json" in keys(root)
    assert [key for key in keys(root) if key.endswith("iteration-0001/policy/manifest.json")] == []


def test_others_records_are_fetched_but_not_over_a_run_of_this_machine(root):
    with lock.hold(root, "line") as place:
        lineages.record_recipe(place, {"name": "r"})
    store = working_copy.store_behind(root)
    store.put("line/summary.json", b'{"lineage": "line", "of": "another machine"}')
    with lock.hold(root, "line") as place:
        summaries.write_summary(place, {"of": "this run"})
        store.put("line/summary.json", b'{"of": "a stale answer"}')
        lock.refresh(root)
        assert summaries.read_summary(root, "line") == {"of": "this run"}
    lock.refresh(root)
    assert summaries.read_summary(root, "line") == {"of": "a stale answer"}


def record(root, value):
    with closing(sqlite3.connect(root / "mlflow.db")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS seen (what TEXT)")
        connection.execute("INSERT INTO seen VALUES (?)", (value,))


def recorded(root):
    with closing(sqlite3.connect(root / "mlflow.db")) as connection:
        return [what for (what,) in connection.execute("SELECT what FROM seen")]


def test_mlflows_database_goes_with_the_store(root, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with lock.hold(root, "line"):
        record(root, "one")
    (root / "mlflow.db").unlink()
    lock.refresh(root)
    assert recorded(root) == ["one"]
    before = working_copy.store_behind(root).list("mlflow.db")
    with pytest.raises(Unplugged), lock.hold(root, "line"):
        unplug(record(root, "two"))
    assert working_copy.store_behind(root).list("mlflow.db") == before
    with lock.hold(root, "line"):  # what a dead run recorded stays here, and is sent with the next commit
        assert recorded(root) == ["one", "two"]


def test_a_database_that_two_machines_wrote_stops_the_second(root, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with lock.hold(root, "line"):
        record(root, "one")
    with pytest.raises(StorageError, match="set MLFLOW_TRACKING_URI on all of them"), lock.hold(root, "line"):
        working_copy.store_behind(root).put("mlflow.db", b"another machine's")


def test_a_tracking_server_keeps_its_own_database(root, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://mlflow@127.0.0.1/mlflow")
    with lock.hold(root, "line"):
        record(root, "one")
    assert "mlflow.db" not in keys(root)
