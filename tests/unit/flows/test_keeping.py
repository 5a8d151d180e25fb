"""A process that ends by itself is started again; one that ends again and again is a fault that is named."""

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from flows.keeping import MAX_RESTARTS, WINDOW_SECONDS, Kept
from flows.servers import ServerError

QUIET = Console(quiet=True)


def ends_with(status):
    return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"], stdin=subprocess.PIPE)


def lasting():
    return subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)


def test_a_process_that_runs_is_left_alone():
    process = lasting()
    kept = Kept("worker", lambda: pytest.fail("started again"), Path("log"), process)
    kept.look(QUIET, now=0.0)
    assert kept.process is process
    process.kill()
    process.wait()


def test_a_process_that_ended_is_started_again_and_told():
    told = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: SIM115
    process = ends_with(3)
    process.wait()
    kept = Kept("Prefect server", lasting, Path("log"), process)
    kept.look(told, now=0.0)
    assert kept.process.poll() is None
    assert "the Prefect server ended with status 3; started again" in told.export_text()
    kept.process.kill()
    kept.process.wait()


def dead():
    process = ends_with(1)
    process.wait()
    return process


def test_one_that_ends_too_often_within_the_window_is_a_fault():
    kept = Kept("worker", dead, Path("worker.log"), dead())
    for number in range(MAX_RESTARTS):
        kept.look(QUIET, now=float(number))
    with pytest.raises(ServerError, match=r"the worker ended 6 times within 600 s; see worker\.log"):
        kept.look(QUIET, now=10.0)


def test_ends_of_long_ago_do_not_count():
    kept = Kept("worker", dead, Path("worker.log"), dead())
    for number in range(3 * MAX_RESTARTS):
        kept.look(QUIET, now=number * WINDOW_SECONDS / 2)
    assert len(kept.endings) == 2
