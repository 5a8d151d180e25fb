"""One run per lineage: a lock that dies with its holder, and a token that a run which lost it does not have."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from storage import checkpoints, lineages, lock, summaries, tables
from storage.errors import CorruptArtifact, LineageBusy, LostLock, StorageError
from storage.manifest import Provenance

ROOT = Path(__file__).parents[3]

HOLDER = """
import sys
from pathlib import Path
from storage import lock
with lock.hold(Path(sys.argv[1]), "lineage") as place:
    print(place.token, flush=True)
    sys.stdin.read()
"""


class Holder:
    """A process that holds the lineage until its input ends or it is killed."""

    def __init__(self, root):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(root)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.token = int(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL


@pytest.fixture
def holder(tmp_path):
    held = Holder(tmp_path)
    yield held
    held.process.kill()
    held.process.communicate()


def contents(folder):
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in folder.rglob("*")}


def test_a_second_run_is_refused_by_the_pid_of_the_first_and_touches_nothing(holder, tmp_path):
    before = contents(tmp_path)
    started = time.monotonic()
    with (
        pytest.raises(LineageBusy, match=rf"process {holder.process.pid} on .*--lineage"),
        lock.hold(tmp_path, "lineage"),
    ):
        pass
    assert time.monotonic() - started < 5
    with pytest.raises(LineageBusy, match=f"process {holder.process.pid} on "):
        lock.probe(tmp_path, "lineage")
    assert contents(tmp_path) == before


def test_the_lock_is_gone_after_a_kill_of_its_holder_and_the_next_token_is_higher(holder, tmp_path):
    holder.kill()
    lock.probe(tmp_path, "lineage")
    with lock.hold(tmp_path, "lineage") as place:
        assert place.token > holder.token


def test_a_token_is_higher_than_the_last_even_when_the_clock_goes_back(tmp_path):
    ahead = 2 * time.time_ns() // 1000
    (tmp_path / "lineage").mkdir()
    (tmp_path / "lineage" / "holder.json").write_text(json.dumps({"token": ahead}))
    with lock.hold(tmp_path, "lineage") as place:
        assert place.token == ahead + 1


def test_the_lineage_is_free_again_after_an_error_of_its_holder(tmp_path):
    with pytest.raises(RuntimeError), lock.hold(tmp_path, "lineage"):
        raise RuntimeError
    with lock.hold(tmp_path, "lineage"):
        pass


def test_children_of_the_holder_do_not_inherit_the_lock(tmp_path):
    with lock.hold(tmp_path, "lineage") as first:
        child = subprocess.Popen(["sleep", "30"], close_fds=False)  # whoever starts it: the lock closes itself
    try:
        with lock.hold(tmp_path, "lineage") as second:
            assert second.token > first.token
    finally:
        child.kill()
        child.wait()


def test_two_lineages_of_one_store_run_side_by_side(place):
    with lock.hold(Path(place.root), "other") as other:
        assert other.lineage_folder != place.lineage_folder


def test_a_probe_that_holds_the_lock_for_an_instant_does_not_turn_a_run_away(tmp_path):
    with lock.hold(tmp_path, "lineage"):
        pass
    descriptor = os.open(tmp_path / "lineage" / "lock", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    release = threading.Timer(0.15, os.close, [descriptor])
    release.start()
    with lock.hold(tmp_path, "lineage"):
        assert release.finished.is_set()


def test_a_probe_of_a_free_lineage_leaves_it_free_and_makes_nothing(tmp_path):
    lock.probe(tmp_path, "lineage")
    assert list(tmp_path.iterdir()) == []
    with lock.hold(tmp_path, "lineage"):
        pass
    lock.probe(tmp_path, "lineage")
    with lock.hold(tmp_path, "lineage"):
        pass


def test_a_file_system_without_locks_is_named_with_the_cure(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=r"without locks .*IGRPO_HOME"), lock.hold(tmp_path, "lineage"):
        pass


def test_a_damaged_note_of_the_holder_is_named_and_never_counts_as_no_holder(place):
    (place.lineage_folder / "holder.json").write_text("")
    with pytest.raises(CorruptArtifact, match=r"holder.json is not JSON"):
        lock.require_token(place)


@pytest.mark.parametrize("name", ["a/b", "..", "", "a b", "-x", "x" * 65, "ü", ".hidden", "a\n"])
def test_a_lineage_name_that_is_no_plain_name_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="lineage name"), lock.hold(tmp_path, name):
        pass
    assert list(tmp_path.iterdir()) == []


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


def write_policy(folder):
    (folder / "model.safetensors").write_bytes(b"w")


def commit_table(place, policy):
    tables.publish(place, "evaluation", [ROW], TABLE)


def commit_checkpoint(place, policy):
    checkpoints.publish(place, "reward", write_policy, POLICY)


def prune(place, policy):
    checkpoints.prune(place, policy)


def move_damage_aside(place, policy):
    (Path(policy.uri) / "model.safetensors").write_bytes(b"")
    checkpoints.find(place, "policy", POLICY)


def sweep(place, policy):
    lineages.sweep(place)


def record_recipe(place, policy):
    lineages.record_recipe(place, {"name": "r"})


def ask(place, policy):
    lineages.target_iteration(place, 0, 3)


def summarise(place, policy):
    summaries.write_summary(place, {})


WRITES = [commit_table, commit_checkpoint, prune, move_damage_aside, sweep, record_recipe, ask, summarise]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("loss", ["another took over", "the folder was removed and made again"])
def test_a_run_that_lost_its_lineage_changes_nothing_in_it(tmp_path, write, loss):
    with lock.hold(tmp_path, "lineage") as stale:
        policy = checkpoints.publish(stale, "policy", write_policy, POLICY)
    if loss == "the folder was removed and made again":
        shutil.rmtree(tmp_path / "lineage")
    with lock.hold(tmp_path, "lineage") as place:
        if not Path(policy.uri).exists():
            checkpoints.publish(place, "policy", write_policy, POLICY)
        (place.lineage_folder / ".tmp-of-the-new-run").mkdir()
        before = set(contents(tmp_path))
        with pytest.raises(LostLock, match=f"token {place.token}, this one has {stale.token}"):
            write(stale, policy)
        assert set(contents(tmp_path)) == before


def test_a_run_whose_folder_was_removed_does_not_make_it_again(place):
    shutil.rmtree(place.lineage_folder)
    with pytest.raises(LostLock, match="removed under this run"):
        commit_table(place, None)
    assert not place.lineage_folder.exists()


def test_a_takeover_while_the_stage_was_computed_is_seen_at_the_commit(place):
    def write(folder):
        (folder / "model.safetensors").write_bytes(b"w")
        (place.lineage_folder / "holder.json").write_text(json.dumps({"token": place.token + 1}))

    with pytest.raises(LostLock):
        checkpoints.publish(place, "policy", write, POLICY)
    assert not place.folder("policy").exists()
    assert not list(place.lineage_folder.rglob(".tmp-*"))
