"""A run that dies at any operation of a commit leaves the whole stage or none of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from storage import checkpoints, files, lineages, lock, tables
from storage.errors import ProvenanceMismatch
from storage.manifest import Provenance

ROOT = Path(__file__).parents[3]
TABLE = Provenance(stage="evaluation", inputs={})
POLICY = Provenance(stage="policy", inputs={})
ROWS = [
    {
        "prompt_id": name,
        "num_samples": 1,
        "num_scored": 1,
        "num_correct": 1,
        "pass_at_1": 1.0,
        "greedy_correct": True,
        "reward_model_mean": None,
    }
    for name in ("p", "q", "r")
]

# Runs a job again and again, each time in a fork that kills itself one operation later, until one reaches its end.
# An operation: a call that changes the disk, as the interpreter's audit events name it, each flush, each Parquet part
# before it, with half of it written and after it.
CHILD = """
import json, os, signal, sys
from pathlib import Path
from storage import checkpoints, lock, tables
from storage.manifest import code
from tests.unit.storage import test_crashes as jobs

root, job = Path(sys.argv[1]), getattr(jobs, sys.argv[2])
code()  # once, not in each fork: it asks git, and Arrow imports pandas
tables.pa.array([1])
EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod"}
left, armed, trace = 0, False, []

def operation(name):
    global left
    if not armed:
        return
    trace.append(name)
    left -= 1
    if left == 0:
        os.write(report, json.dumps(trace).encode())
        os.kill(os.getpid(), signal.SIGKILL)

def audit(event, arguments):
    if armed and event in EVENTS:
        if event == "open" and isinstance(arguments[2], int) and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return  # reading changes nothing
        operation(f"{event} {os.path.basename(str(arguments[0]))}")

sys.addaudithook(audit)
plain_write_table = tables.pq.write_table

def fsync(descriptor):  # a killed process loses nothing that it wrote, so the disk need not be waited for
    operation("flush")

def write_table(table, path, **settings):
    operation("before a part")
    plain_write_table(table, path, **settings)
    whole = Path(path).read_bytes()
    os.truncate(path, len(whole) // 2)
    operation("inside a part")
    plain_write_table(table, path, **settings)
    operation("after a part")

os.fsync, tables.pq.write_table = fsync, write_table
tables.ROWS_PER_PART = 2
for number in range(1, 500):
    read, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        left = number
        with lock.hold(root / str(number), "lineage") as place:
            armed = True
            job(place)
            armed = False
        os._exit(0)
    os.close(report)
    status = os.waitpid(pid, 0)[1]
    with os.fdopen(read) as pipe:
        print(json.dumps([number, os.WIFSIGNALED(status), json.loads(pipe.read() or "[]")]), flush=True)
    if not os.WIFSIGNALED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
"""


def commit_table(place):
    return tables.publish(place.at(iteration=3, section="step-002"), "evaluation", ROWS, TABLE)


def write_policy(folder):
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "trainer").mkdir()
    (folder / "trainer" / "counters.json").write_text("{}")


def commit_checkpoint(place):
    return checkpoints.publish(place, "policy", write_policy, POLICY)


def prune_checkpoint(place):
    ref = commit_checkpoint(place)
    checkpoints.prune(place, ref)
    return ref


def note_request(place):
    return lineages.target_iteration(place, 0, 3)


def every_kill(tmp_path, job):
    """(folder of a store, operations done before the kill) for a kill at every operation; the last run is not killed."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), job.__name__], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [killed for _, killed, _ in runs] == [True] * (len(runs) - 1) + [False]
    return [(tmp_path / str(number), trace) for number, _, trace in runs]


@pytest.fixture
def no_waiting(monkeypatch):
    """The repeats after each kill need not wait for the disk."""
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)


def litter(store):
    return [path for path in store.rglob("*") if path.name.startswith((files.ASIDE, files.QUARANTINE))]


def has_renamed(trace, name):
    """Whether the folder had got its name: the rename is an operation before which the run was killed."""
    return any(event == f"os.rename .tmp-{name}" for event in (each.rsplit("-", 1)[0] for each in trace[:-1]))


@pytest.mark.parametrize(
    ("job", "name", "find"),
    [
        (
            commit_table,
            "evaluation",
            lambda place: tables.find(place.at(iteration=3, section="step-002"), "evaluation", TABLE),
        ),
        (commit_checkpoint, "policy", lambda place: checkpoints.find(place, "policy", POLICY)),
    ],
    ids=["table", "checkpoint"],
)
def test_a_kill_at_any_operation_of_a_commit_leaves_the_whole_stage_or_none_of_it(
    tmp_path, no_waiting, job, name, find
):
    outcomes = []
    for store, trace in every_kill(tmp_path, job):
        with lock.hold(store, "lineage") as place:
            found = find(place)
            assert not list(store.rglob(f"{files.QUARANTINE}*")), trace  # nothing torn had the stage's own name
            if trace:
                assert (found is not None) is has_renamed(trace, name), trace
            outcomes.append(found is not None)
            lineages.sweep(place)
            assert not litter(store), trace
            ref = found or job(place)
            if name == "evaluation":
                assert tables.read(ref) == ROWS
            else:
                checkpoints._verified.clear()
                assert (checkpoints.open_folder(ref) / "model.safetensors").read_bytes() == b"weights"
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) > 15
    assert outcomes.count(True) > 1  # killed after the rename, and not killed


def test_a_kill_at_any_operation_of_pruning_never_leaves_a_promise_of_files_that_are_gone(tmp_path, no_waiting):
    num_opened = 0
    for store, _ in every_kill(tmp_path, prune_checkpoint):
        with lock.hold(store, "lineage") as place:
            ref = checkpoints.find(place, "policy", POLICY)
            assert not list(store.rglob(f"{files.QUARANTINE}*"))
            if ref is None:
                continue
            checkpoints._verified.clear()
            try:
                assert (checkpoints.open_folder(ref) / "model.safetensors").read_bytes() == b"weights"
                num_opened += 1
            except checkpoints.PrunedCheckpoint:
                pass
            checkpoints.prune(place, ref)
            lineages.sweep(place)
            assert [path.name for path in Path(ref.uri).iterdir()] == ["manifest.json"]
    assert num_opened > 0


def test_a_kill_at_any_operation_of_a_small_file_leaves_the_old_one_or_the_new_one(tmp_path, no_waiting):
    targets = set()
    for store, _ in every_kill(tmp_path, note_request):
        with lock.hold(store, "lineage") as place:
            targets.add(lineages.target_iteration(place, 1, 3))
            lineages.sweep(place)
            assert not litter(store)
    assert targets == {3, 4}  # the request was kept, or never made: then three more after the first


def test_an_error_inside_the_stage_leaves_nothing(place):
    def fail(folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        checkpoints.publish(place, "policy", fail, POLICY)
    assert not litter(place.lineage_folder)
    assert checkpoints.find(place, "policy", POLICY) is None


def test_a_small_file_that_does_not_fit_on_the_disk_leaves_the_old_one(place, monkeypatch):
    path = place.lineage_folder / "note.json"
    files.write_atomic(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert not litter(place.lineage_folder)


def test_who_reads_a_small_file_while_it_is_replaced_reads_the_whole_old_one(place):
    path = place.lineage_folder / "note.json"
    files.write_atomic(path, b"old" * 10_000)
    with path.open("rb") as reader:
        first = reader.read(1)
        files.write_atomic(path, b"new")
        assert first + reader.read() == b"old" * 10_000
    assert path.read_bytes() == b"new"


def test_every_file_and_every_folder_on_the_way_is_flushed_before_or_right_after_the_rename(place, monkeypatch):
    flushed = []
    plain_fsync, plain_rename = files.os.fsync, Path.rename

    def fsync(descriptor):
        flushed.append(Path(files.os.readlink(f"/proc/self/fd/{descriptor}")).relative_to(place.root).as_posix())
        plain_fsync(descriptor)

    def rename(self, target):
        flushed.append("rename")
        return plain_rename(self, target)

    monkeypatch.setattr(files.os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    checkpoints.publish(place.at(iteration=7, section="step-001"), "policy", write_policy, POLICY)
    before, after = flushed[: flushed.index("rename")], flushed[flushed.index("rename") + 1 :]
    for path in ("lineage", "lineage/iteration-0007"):  # the entries of the new folders on the way
        assert path in before
    aside = next(path for path in before if path.rpartition("/")[2].startswith(".tmp-policy"))
    for name in ("model.safetensors", "manifest.json", "trainer", "trainer/counters.json"):
        assert any(path == f"{aside}/{name}" for path in before), name
    assert after == ["lineage/iteration-0007/step-001"]


def test_sweeping_leaves_what_is_finished(place):
    ref = commit_table(place)
    lineages.target_iteration(place, 0, 3)
    for name in (".tmp-x", "iteration-0003/.tmp-y/inner", "iteration-0003/step-002/.tmp-z"):
        (place.lineage_folder / name).mkdir(parents=True)
    (place.lineage_folder / ".tmp-holder.json-1").write_text("half")
    before = {path for path in place.lineage_folder.rglob("*") if ".tmp-" not in str(path)}
    assert lineages.sweep(place) == 4
    assert set(place.lineage_folder.rglob("*")) == before
    assert tables.read(ref) == ROWS
    assert lineages.sweep(place) == 0


def test_a_stage_that_is_found_is_not_made_again_and_another_one_is_not_taken_for_it(place):
    ref = commit_table(place)
    there = place.at(iteration=3, section="step-002")
    assert tables.find(there, "evaluation", TABLE) == ref
    with pytest.raises(ProvenanceMismatch):
        tables.find(there, "evaluation", Provenance(stage="evaluation", inputs={"x": "1"}))
    with pytest.raises(FileExistsError, match="already committed"):
        commit_table(place)
