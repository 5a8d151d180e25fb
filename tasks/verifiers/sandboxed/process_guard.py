"""Runs a program where there is no sandbox, and ends all that it starts: the weaker isolation.

Whatever the program starts, in a session of its own too, becomes this process's child when its parent ends; so it is found
and killed. The program can still read files, use the network and, when it runs as the same user, kill this process.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NOBODY = 65534


class _Stop(BaseException):
    """The parent wants an end, or is gone."""


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stop


def main() -> None:
    status, parent, *command = sys.argv[1:]
    signal.signal(signal.SIGTERM, _stop)
    os.setsid()  # a signal to the parent's group must not end this process before it has ended the program's
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    code = None
    try:
        if os.getppid() != int(parent):  # it ended before the request
            raise _Stop
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _become(command, int(status))
        for inherited in (0, 1):
            os.close(inherited)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except _Stop:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_descendants()
    if code is not None:
        os.write(int(status), json.dumps({"exit-code": code if code >= 0 else 128 - code}).encode() + b"\n")
    os._exit(0)


def _become(command: list[str], status: int) -> None:
    """Give up root and turn into the program; never returns."""
    try:
        os.close(status)
        os.setsid()
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        os.execv(command[0], command)  # noqa: S606  # a fixed command line of our own
    except OSError as error:
        os.write(2, f"{error}: the user nobody can not run {command[0]}; do not run as root\n".encode())
    finally:
        os._exit(127)


def end_descendants() -> None:
    """Kill and reap until there is no child left; those that a child leaves behind become children."""
    while True:
        for pid in children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    """The processes whose parent this one is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            except (OSError, IndexError):  # it has ended
                continue
            if int(parent) == os.getpid():
                found.append(int(entry.name))
    return found
