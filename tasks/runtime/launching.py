"""Run a program in several ranks from a stage: started by torch's elastic launcher, gone with this process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tasks.runtime.environment import of_ranks
from tasks.runtime.progress import OnProgress
from tasks.runtime.rank_files import ERROR_FILE, FAILURE_FILE, PROGRESS_FILE

ROOT = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.2
END_SECONDS = 10.0


class RankFailed(Exception):
    """A rank did not finish its work; the message names the rank, what became of it, and the log."""


def run_in_ranks(
    module: str, folder: Path, log: Path, *, num_processes: int, num_threads: int | None, on_progress: OnProgress
) -> None:
    """Run ``python -m MODULE FOLDER`` in ``num_processes`` ranks on this machine, and wait for them.

    They are a process group of their own that ends with this process, however it ends; their output goes to ``log``.

    Args:
        folder: holds what the program reads, and takes what it says of itself (progress, errors).

    Raises:
        RankFailed: a rank raised an error or was killed. The others are ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "tasks.runtime.launcher", module, str(folder), str(num_processes)],
            stdin=subprocess.PIPE,  # held open: its end tells the launcher that this process is gone
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
            env=of_ranks(num_processes, num_threads),
        )
    try:
        status = _wait(launcher, folder / PROGRESS_FILE, on_progress)
    finally:
        _end(launcher)
    if status != 0:
        raise RankFailed(f"{_what_failed(folder, status)}; see {log}")


def _wait(launcher: subprocess.Popen[bytes], progress: Path, on_progress: OnProgress) -> int:
    said = ""
    while True:
        try:
            return launcher.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            text = progress.read_text() if progress.exists() else ""
            if text.endswith("\n") and text != said:
                said = text
                done, total = text.split()
                on_progress(int(done), int(total))


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """The end of its pipe kills the launcher and with it the ranks; a launcher that does not listen is killed."""
    assert launcher.stdin is not None
    launcher.stdin.close()
    try:
        launcher.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


def _what_failed(folder: Path, status: int) -> str:
    try:
        failure = json.loads((folder / FAILURE_FILE).read_text())
    except FileNotFoundError:
        return f"the launcher of the ranks {_how(status)}"
    rank = int(failure["rank"])
    said = folder / ERROR_FILE.format(rank=rank)
    return f"rank {rank}: {said.read_text()}" if said.exists() else f"rank {rank} {_how(int(failure['status']))}"


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    hint = " (by the system when memory ran out, or by hand)" if status == -signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
