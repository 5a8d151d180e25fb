"""Ranks as processes: who is to blame, what is said of it, what they inherit, and that none is left."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tasks.runtime.environment import of_ranks
from tasks.runtime.launcher import first_to_blame
from tasks.runtime.launching import RankFailed, run_in_ranks

PROGRAM = "tests.unit.tasks.runtime.rank_fates"


@pytest.mark.parametrize(
    ("statuses", "blamed"),
    [
        ({0: 1, 1: -signal.SIGKILL}, 1),  # the raised error is that its partner was gone
        ({0: 1, 1: 1}, 0),
        ({0: -signal.SIGTERM, 1: 1}, 1),  # ended by the launcher
        ({0: -signal.SIGTERM, 1: -signal.SIGKILL, 2: 1}, 1),
        ({2: 3}, 2),
        ({0: -signal.SIGSEGV, 1: -signal.SIGKILL}, 0),
    ],
)
def test_a_killed_rank_is_blamed_before_one_that_missed_it(statuses, blamed):
    assert first_to_blame(statuses) == blamed


def test_ranks_share_the_cores_unless_the_threads_are_set(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert of_ranks(3, None)["OMP_NUM_THREADS"] == "2"
    assert of_ranks(16, None)["OMP_NUM_THREADS"] == "1"
    assert of_ranks(3, 5)["OMP_NUM_THREADS"] == "5"


def run(folder, *fates):
    """Each rank meets its fate; gives the counts that were reported."""
    (folder / "fates.json").write_text(json.dumps(fates))
    reported = []
    run_in_ranks(
        PROGRAM,
        folder,
        folder / "ranks.log",
        num_processes=len(fates),
        num_threads=1,
        on_progress=lambda done, total: reported.append((done, total)),
    )
    return reported


def alive(folder):
    """Processes whose command names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


@pytest.mark.ranks
class TestFates:
    def test_ranks_that_finish_leave_their_output_in_the_log(self, tmp_path):
        assert run(tmp_path, "wait 1", "finish") == [(3, 8)]
        log = (tmp_path / "ranks.log").read_text()
        assert "rank 0 of 2" in log
        assert "rank 1 of 2" in log

    def test_an_error_is_told_with_its_rank_and_the_log(self, tmp_path):
        with pytest.raises(RankFailed, match=rf"^rank 1: ValueError: no such luck; see {tmp_path}/ranks.log$"):
            run(tmp_path, "wait 300", "raise")
        assert "Traceback" in (tmp_path / "ranks.log").read_text()
        assert alive(tmp_path) == []

    def test_a_killed_rank_ends_the_others_and_is_named(self, tmp_path):
        begun = time.monotonic()
        with pytest.raises(RankFailed, match="rank 0 was killed by SIGKILL"):
            run(tmp_path, "kill", "wait 300")
        assert time.monotonic() - begun < 120
        assert alive(tmp_path) == []

    def test_without_its_launcher_no_rank_lives_on(self, tmp_path):
        with pytest.raises(RankFailed, match="the launcher of the ranks was killed by SIGKILL"):
            run(tmp_path, "kill the launcher", "wait 300")
        deadline = time.monotonic() + 20
        while alive(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert alive(tmp_path) == []
