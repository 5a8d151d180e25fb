"""The harness of `make chaos` sees what it is there to see."""

import json
import os
import signal
import subprocess
import sys

import pytest

from storage import lock, tables
from storage.manifest import Provenance
from tests.chaos import kills, outcomes, processes
from tests.chaos.bench import Findings
from tests.chaos.comparing import broken, differing
from tests.chaos.kills import Campaign, Kill, outcome_of
from tests.chaos.outcomes import Outcome
from tests.chaos.runs import HOOKS, Ended, Running, Subject


@pytest.fixture
def table(tmp_path):
    """A committed table in a store; gives its folder."""
    with lock.hold(tmp_path, "small") as place:
        schema = tables.schema_of("selection")
        values = {"bool": True, "string": "x", "large_string": "x", "list<item: int32>": [1]}
        rows = [{field.name: values.get(str(field.type), n) for field in schema} for n in range(3)]
        ref = tables.publish(place.at(iteration=1), "selection", rows, Provenance(stage="selection", inputs={}))
    return tmp_path / ref.uri


def test_whole_things_are_not_broken(table, tmp_path):
    assert broken(tmp_path, "small") == []


def test_changed_bytes_unfinished_writes_and_folders_moved_aside_are_seen(table, tmp_path):
    (part,) = table.glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    (table.parent / ".tmp-x").mkdir()
    (table.parent / ".corrupt-x").mkdir()
    found = broken(tmp_path, "small")
    assert [f"{part} has sha256" in each for each in found] == [True, False, False]
    assert "unfinished write" in found[1]
    assert found[2].startswith("1 folders moved aside, 0 expected")
    assert len(broken(tmp_path, "small", allow_set_aside=1)) == 2


def test_rows_that_the_manifest_does_not_count_are_seen(table, tmp_path):
    path = table / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_rows": 4}))
    assert broken(tmp_path, "small") == [f"{table} has 3 rows, 4 committed"]


def test_another_digest_and_another_count_are_two_differences():
    one = {"committed": {"a": "x with 3 rows"}, "mlflow": {"metrics": 4}}
    two = {"committed": {"a": "y with 3 rows"}, "mlflow": {"metrics": 5}}
    assert len(differing(one, two)) == 2
    assert differing(one, one) == []


def test_a_process_that_outlives_the_run_is_found_by_its_mark_and_ended(tmp_path):
    log = tmp_path / "log"
    log.write_text("")
    orphan = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-S", "-c", orphan], env={**os.environ, processes.MARK: "m1"})
    process.wait()
    (left,) = processes.marked("m1")
    assert processes.left_after(lambda: processes.marked("m1"), 0.1) == [
        f"{left[0]}: {sys.executable} -c import time; time.sleep(60)"
    ]
    assert processes.kill(left, signal.SIGKILL)
    assert processes.left_after(lambda: processes.marked("m1"), 5.0) == []
    assert not processes.kill(left, signal.SIGKILL)


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (-9, "", kills.DIED),
        (-9, "\nkilled after 300 s: it hung", ""),
        (0, "", kills.WENT_ON),
        (1, "error: the server is gone", kills.FAILED),
        (1, "", ""),
        (1, "Traceback (most recent call last)\nerror: x", ""),
        (-11, "error: x", ""),
    ],
)
def test_an_end_is_one_of_three_or_a_finding(status, said, outcome):
    assert outcome_of(Ended(status, 1.0, said, [])) == outcome


def test_an_end_with_an_orphan_or_a_traceback_is_a_finding():
    found = Findings()
    found.ended("a", Ended(0, 1.0, "fine", []), 0, "fine")
    assert found == []
    found.ended("b", Ended(1, 1.0, "Traceback", ["7: sleep"]), 0, "word")
    assert len(found) == 4


def test_the_run_dies_at_the_write_that_was_asked_for_and_not_in_its_children(tmp_path):
    program = (
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', f\"open('{os.environ['IGRPO_HOME']}/c', 'w')\"], check=True)\n"
        "for name in 'abc': open(f\"{os.environ['IGRPO_HOME']}/{name}\", 'w')\n"
    )
    env = {**os.environ, "IGRPO_HOME": str(tmp_path), "PYTHONPATH": str(HOOKS), "CHAOS_PARENT": str(os.getpid())}
    count = tmp_path.with_name("count")
    done = subprocess.run([sys.executable, "-c", program], env={**env, "CHAOS_COUNT": str(count)})
    assert (done.returncode, count.read_text()) == (0, "3")
    for name in "abc":
        (tmp_path / name).unlink()
    done = subprocess.run([sys.executable, "-c", program], env={**env, "CHAOS_AT_WRITE": "2"})
    assert done.returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_the_last_line_counts_kills_faults_and_what_differs():
    campaign = Campaign("driver", [Kill("driver", "1 s", "died")] * 3, Findings(["x"]), 2)
    faults = [
        Outcome("full disk", "stops", "as expected", [], 1.0),
        Outcome("clock", "goes on", "differs", ["y", "z"], 1.0),
        Outcome("mount", "stops", "not tried", ["no root"], 0.0),
    ]
    assert outcomes.line([campaign], faults, 61.4) == (
        "chaos: 3 kills in 2 runs, 2 faults, 1 not tried (mount), 2 differ from what is promised, 61 s"
    )


def test_a_run_past_its_limit_is_killed_and_says_so(tmp_path):
    log = tmp_path / "log"
    log.write_text("said")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    done = Running(process, "none", log).end(0.5)
    assert (done.status, outcome_of(done)) == (-signal.SIGKILL, "")
    assert done.said == "said\nkilled after 0 s: it hung"


def test_a_store_has_an_environment_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    subject = Subject(tmp_path / "one", ("run",))
    assert "MLFLOW_TRACKING_URI" not in subject.environment()
    assert subject.environment()["IGRPO_HOME"] == str(tmp_path / "one")
