"""Guarded processes: their descendants end with them, in whatever session they are."""

import subprocess
import sys
import time
from pathlib import Path

from tasks.runtime.guarded import start_guarded, stop

DAEMON = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def becomes(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def started(log, program):
    process = start_guarded([sys.executable, "-c", program], log, {})
    assert becomes(lambda: log.is_file() and log.read_text().endswith("\n"))
    return process, int(log.read_text())


def test_what_a_command_leaves_behind_ends_when_the_command_ends(tmp_path):
    process, orphan = started(tmp_path / "log", DAEMON)
    assert process.wait(20) == 0
    assert not is_alive(orphan)
    stop(process)


def test_what_a_command_started_in_another_session_ends_when_it_is_stopped(tmp_path):
    process, orphan = started(tmp_path / "log", DAEMON + "child.wait()\n")
    assert is_alive(orphan)
    stop(process)
    assert becomes(lambda: not is_alive(orphan))


def test_a_command_that_ignores_the_request_to_end_is_killed(tmp_path):
    ignoring = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid(), flush=True)\ntime.sleep(300)\n"
    process, child = started(tmp_path / "log", ignoring)
    stop(process, timeout_seconds=0.2)
    assert becomes(lambda: not is_alive(child))


def test_the_status_of_the_command_is_the_guards(tmp_path):
    for program, status in (("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)):
        process = start_guarded([sys.executable, "-c", program], tmp_path / "log", {})
        assert process.wait(20) == status
        stop(process)


def test_the_environment_differs_by_what_is_given(tmp_path):
    log = tmp_path / "folder" / "log"
    process = start_guarded([sys.executable, "-c", "import os; print(os.environ['SAID'])"], log, {"SAID": "yes"})
    process.wait(20)
    stop(process)
    assert log.read_text() == "yes\n"
    assert isinstance(process, subprocess.Popen)
