"""Imported by the run under test, for its place on PYTHONPATH: counts what is written below the store, and sends a signal.

Only the process that the harness started counts (``CHAOS_PARENT``), not its children. A write is what Python's audit events
say: a file opened for writing, a rename, a link, a folder made, a file or folder removed.
"""

import atexit
import os
import signal
import sys
from pathlib import Path

STORE = os.environ.get("IGRPO_HOME", "")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
NOT_COUNTED = (f"{STORE}/prefect", f"{STORE}/mlflow.db")

seen = 0


def is_write(event: str, arguments: tuple) -> bool:
    if event == "open":
        path, _, flags = arguments
        return bool((flags or 0) & WRITING) and is_below(path)
    return event in CHANGES and is_below(arguments[0])


def is_below(path: object) -> bool:
    return isinstance(path, (str, os.PathLike)) and (
        str(path).startswith(f"{STORE}/") and not str(path).startswith(NOT_COUNTED)
    )


def count(event: str, arguments: tuple) -> None:
    global seen
    if is_write(event, arguments):
        seen += 1
        if seen == KILL_AT:
            os.kill(os.getpid(), SIGNAL)


if os.environ.get("CHAOS_PARENT") == str(os.getppid()) and STORE:
    KILL_AT = int(os.environ.get("CHAOS_AT_WRITE", "0"))
    SIGNAL = signal.Signals[os.environ.get("CHAOS_SIGNAL", "SIGKILL")]
    sys.addaudithook(count)
    if told := os.environ.get("CHAOS_COUNT"):
        atexit.register(lambda: Path(told).write_text(str(seen)))
