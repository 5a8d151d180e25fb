"""A rank's process: tied to its launcher before anything heavy is imported, its error kept in a line."""

import ctypes
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

from tasks.runtime.rank_files import ERROR_FILE, LAUNCHER_PID

PR_SET_PDEATHSIG = 1


def die_with(launcher_pid: int) -> None:
    """Be killed when the launcher ends, also when it was killed itself (its main thread starts the ranks)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher_pid:  # it ended before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def main(module: str, folder: str) -> None:
    if launcher := os.environ.get(LAUNCHER_PID):
        die_with(int(launcher))
    sys.argv = [module, folder]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception as error:  # noqa: BLE001  # whatever it is, the stage that waits is told
        (Path(folder) / ERROR_FILE.format(rank=os.environ["RANK"])).write_text(f"{type(error).__name__}: {error}")
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
