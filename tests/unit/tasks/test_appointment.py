"""What a deployed run finds when its time comes: the lineage free or held, something to do or nothing."""

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from storage import iterations, lineages, lock
from storage.errors import LineageBusy, UnknownLineage
from storage.iterations import RECORD, IterationRecord
from storage.manifest import created_at
from tasks import appointment
from tasks.appointment import hold_when_free, nothing_to_do, recorded_recipe

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, time
from pathlib import Path
from storage import lock
with lock.hold(Path(sys.argv[1]), "lineage"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def hold_elsewhere(tmp_path, monkeypatch):
    """Start a process that holds the lineage for some seconds."""
    monkeypatch.setenv("IGRPO_HOME", str(tmp_path))
    started = []

    def start(seconds):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path), str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "held\n"
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_free_lineage_is_held(tmp_path, monkeypatch):
    monkeypatch.setenv("IGRPO_HOME", str(tmp_path))
    with hold_when_free("lineage", "skip", 1.0) as held:
        assert held.place.lineage == "lineage"
        with pytest.raises(LineageBusy):
            lock.probe(tmp_path, "lineage")


def test_skip_gives_up_at_once_and_says_who_holds_it(hold_elsewhere):
    process = hold_elsewhere(60)
    began = time.monotonic()
    with hold_when_free("lineage", "skip", 60.0) as held:
        assert held.place is None
        assert f"lineage 'lineage' is held by process {process.pid} on" in held.busy
    assert time.monotonic() - began < 5.0


def test_wait_gets_the_lineage_once_the_other_has_ended(hold_elsewhere):
    process = hold_elsewhere(1.5)
    with hold_when_free("lineage", "wait", 1.0) as held:
        assert process.wait(10) == 0
        assert held.place.token == lock.read_holder(Path(held.place.root) / "lineage")["token"]


def test_wait_ends_at_its_limit_with_the_holder_s_name(hold_elsewhere):
    process = hold_elsewhere(60)
    began = time.monotonic()
    with pytest.raises(LineageBusy, match=f"process {process.pid}"), hold_when_free("lineage", "wait", 1.0 / 60):
        pass
    assert 0.9 < time.monotonic() - began < 10.0


def test_a_lock_does_not_outlive_its_owner(hold_elsewhere):
    hold_elsewhere(60).kill()
    with hold_when_free("lineage", "wait", 0.1) as held:
        assert held.place is not None


def test_an_error_of_the_run_is_not_taken_for_a_lineage_that_is_held(tmp_path, monkeypatch):
    monkeypatch.setenv("IGRPO_HOME", str(tmp_path))
    with pytest.raises(LineageBusy, match="another"), hold_when_free("lineage", "skip", 1.0):
        raise LineageBusy("another")


def test_a_lineage_that_is_not_there_is_named_and_not_made(tmp_path, monkeypatch):
    monkeypatch.setenv("IGRPO_HOME", str(tmp_path))
    with pytest.raises(UnknownLineage, match="no lineage 'typo'"):
        recorded_recipe.fn("typo")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def finished(place, monkeypatch):
    """Iteration 3 is the newest finished one; gives when it was finished."""
    from storage import commits
    from storage.manifest import Provenance

    def write(folder):
        (folder / "record.json").write_text("{}")

    here = place.at(iteration=3)
    commits.publish(here, here.folder(RECORD), write, Provenance(stage=RECORD, inputs={}))
    record = IterationRecord.model_construct(iteration=3)
    monkeypatch.setattr(appointment.iterations, "latest_record", lambda root, lineage: record)
    return datetime.fromisoformat(created_at(here.folder(RECORD)))


def test_a_run_that_is_late_has_nothing_to_do_once_another_came_after_its_time(place, finished):
    why = nothing_to_do.fn(place, finished - timedelta(minutes=1), None)
    assert why.startswith("iteration 3 of lineage was finished at ")
    assert nothing_to_do.fn(place, finished + timedelta(minutes=1), None) == ""


def test_a_run_that_a_person_started_is_never_late(place, finished):
    assert nothing_to_do.fn(place, None, None) == ""


def test_a_lineage_that_stands_where_it_was_to_stop_is_done(place, finished):
    assert nothing_to_do.fn(place, None, 3) == "lineage stands at iteration 3, and was to stop at 3"
    assert nothing_to_do.fn(place, None, 4) == ""


def test_an_interrupted_run_is_gone_on_with_however_late(place, finished):
    lineages.target_iteration(place, 2, 5)
    assert nothing_to_do.fn(place, datetime(2000, 1, 1, tzinfo=UTC), 3) == ""


def test_a_new_lineage_has_everything_to_do(place):
    assert iterations.latest_record(Path(place.root), place.lineage) is None
    assert nothing_to_do.fn(place, datetime(2000, 1, 1, tzinfo=UTC), 1) == ""
