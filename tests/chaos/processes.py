"""Which processes a run has started: by a mark in their environment, and by descent."""

import os
import time
from collections.abc import Callable
from pathlib import Path

MARK = "CHAOS_MARK"
GONE_SECONDS = 15.0
"""Within this time every process of a run that was killed has to be gone; guards need 0.3 s, a busy machine more."""

Process = tuple[int, int]
"""Process id, and start time in clock ticks since boot: ids are used again."""


def started_at(pid: int) -> int | None:
    """Clock ticks since boot; None for a process that has ended, one that nobody has waited for yet among them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(process: Process) -> bool:
    return started_at(process[0]) == process[1]


def marked(mark: str) -> list[Process]:
    """The living processes whose environment holds the mark."""
    wanted, found = f"{MARK}={mark}\0".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            has_mark = wanted in path.read_bytes()
        except OSError:
            continue
        pid = int(path.parent.name)
        if has_mark and (began := started_at(pid)) is not None:
            found.append((pid, began))
    return found


def descendants(root: int) -> list[Process]:
    """The living processes below ``root``, those whose environment was emptied (sandboxes) too."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [(pid, began) for pid in found if (began := started_at(pid)) is not None]


def command_of(process: Process) -> str:
    """What a process runs, for a person to read; "" when it is gone."""
    try:
        return Path(f"/proc/{process[0]}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def left_after(find: Callable[[], list[Process]], seconds: float = GONE_SECONDS) -> list[str]:
    """Wait until ``find`` finds no process; what is left after ``seconds``, each with its command line."""
    deadline = time.monotonic() + seconds
    while (alive := find()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [f"{pid}: {command_of((pid, began))}" for pid, began in alive]


def kill(process: Process, signal_number: int) -> bool:
    """Send a signal to a process, if it is still the one that was meant; whether it was."""
    if not is_alive(process):
        return False
    try:
        os.kill(process[0], signal_number)
    except ProcessLookupError:
        return False
    return True
