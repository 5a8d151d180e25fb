"""Run as a program: starts a command and ends it, with all that it started, when the owner of standard input is gone.

The owner holds the other end of a pipe. End of file means that it is gone, however it went. (PR_SET_PDEATHSIG on the
command alone would tie it to the thread that started it, and its own children to nobody.) What the command leaves behind
becomes this process's child, in whatever session it is, and is found.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SECONDS_BETWEEN_ROUNDS = 0.02
MAX_ROUNDS = 200


def main() -> None:
    """Run the command of the command line; its exit status becomes this process's."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # should this process be killed
    )
    threading.Thread(target=_watch, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    status = child.wait()
    end_descendants()
    sys.exit(status if status >= 0 else 128 - status)


def _watch() -> None:
    os.read(0, 1)
    end_descendants()
    os.killpg(0, signal.SIGKILL)


def end_descendants() -> None:
    """Kill every process below this one until none is alive; one that the kernel can not end is left after some rounds."""
    for _ in range(MAX_ROUNDS):
        alive = descendants()
        if not alive:
            return
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(SECONDS_BETWEEN_ROUNDS)


def descendants() -> list[int]:
    """The processes below this one that have not ended."""
    children: dict[int, list[int]] = {}
    dead = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            except (OSError, ValueError):  # it has ended
                continue
            children.setdefault(int(parent), []).append(int(entry.name))
            if state in "ZX":
                dead.add(int(entry.name))
    found, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [pid for pid in found if pid not in dead]


if __name__ == "__main__":
    main()
