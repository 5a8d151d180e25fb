"""One command over one store, started again and again: what it ended with, and what it left behind."""

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from flows.environment import DEFAULTS
from tests.chaos import processes
from tests.chaos.processes import MARK, Process

ROOT = Path(__file__).parents[2]
HOOKS = Path(__file__).with_name("hooks")
LIMIT_SECONDS = 300.0
"""A run of the small recipe takes 10 to 20 s; one that needs more than this hangs."""


PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


def _end_with_the_harness() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Ended:
    """``status`` is negative where a signal ended the run. ``orphans``: processes of the run that outlived it."""

    status: int
    seconds: float
    said: str
    orphans: list[str]

    @property
    def error(self) -> str:
        """The one line that the run says when it fails, with the lines of what differs; "" when it said none."""
        return self.said[self.said.index("error:") :].strip() if "error:" in self.said else ""


class Running:
    """A run under way, and every process that was seen below it."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str, log: Path) -> None:
        self.process = process
        self.began = time.monotonic()
        self._mark = mark
        self._log = log
        self._known: set[Process] = set()

    def children(self) -> list[Process]:
        """The living processes below the run, or with its mark."""
        found = {*processes.descendants(self.process.pid), *processes.marked(self._mark)}
        self._known |= found
        return sorted(each for each in found if each[0] != self.process.pid)

    def sleep_until(self, seconds: float) -> bool:
        """Wait until so many seconds after the start; whether the run is still alive then."""
        try:
            self.process.wait(max(0.0, self.began + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            return True
        return False

    def send(self, number: int) -> bool:
        """Send a signal to the run itself; whether it was alive."""
        self.children()
        if self.process.poll() is not None:
            return False
        self.process.send_signal(number)
        return True

    def end(self, limit_seconds: float = LIMIT_SECONDS) -> Ended:
        """Wait for the end. A run over its limit is killed, and says so."""
        hung = ""
        try:
            self.process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            hung = f"\nkilled after {limit_seconds:.0f} s: it hung"
            self.process.kill()
            self.process.wait()
        seconds = time.monotonic() - self.began
        orphans = processes.left_after(
            lambda: sorted({*processes.marked(self._mark), *filter(processes.is_alive, self._known)})
        )
        for orphan in orphans:  # told, and not left to disturb what follows
            os.kill(int(orphan.partition(":")[0]), signal.SIGKILL)
        return Ended(self.process.returncode, seconds, self._log.read_text(errors="replace") + hung, orphans)


@dataclass
class Subject:
    """``igrpo ARGUMENTS`` over one store, always with the same settings."""

    store: Path
    arguments: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, **env: str) -> Running:
        """Start the command (or another one over the same store), with further environment variables."""
        mark = secrets.token_hex(8)
        log = self.store.with_name(f"{self.store.name}-{mark}.log")
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", *(arguments or self.arguments)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_the_harness,
                env={**self.environment(), **env, MARK: mark},
            )
        return Running(process, mark, log)

    def run(self, *arguments: str, **env: str) -> Ended:
        return self.start(*arguments, **env).end()

    def environment(self) -> dict[str, str]:
        """All environment variables of a run but its mark."""
        inherited = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        return {
            **inherited,
            **DEFAULTS,
            "IGRPO_HOME": str(self.store),
            "PREFECT_HOME": str(self.store.with_name(f"{self.store.name}-prefect")),
            "PYTHONPATH": str(HOOKS),
            "CHAOS_PARENT": str(os.getpid()),
            "COLUMNS": "160",
            **self.env,
        }
