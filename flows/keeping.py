"""Servers and a worker kept up for as long as this process lives: one that ends by itself is started again."""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from flows.servers import ServerError
from tasks.runtime.guarded import stop

MAX_RESTARTS = 5
WINDOW_SECONDS = 600.0
"""More than ``MAX_RESTARTS`` ends of one process within this time are a fault that a restart does not cure."""
SECONDS_BETWEEN_LOOKS = 0.5


@dataclass
class Kept:
    """A process, how it is started, and when it ended by itself (monotonic seconds)."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    log: Path
    process: subprocess.Popen[bytes]
    endings: list[float] = field(default_factory=list)

    def look(self, out: Console, now: float) -> None:
        """Start the process again when it has ended.

        Raises:
            ServerError: it has ended too often.
        """
        if self.process.poll() is None:
            return
        self.endings = [each for each in self.endings if now - each < WINDOW_SECONDS] + [now]
        status = self.process.returncode
        stop(self.process)
        if len(self.endings) > MAX_RESTARTS:
            raise ServerError(
                f"the {self.name} ended {len(self.endings)} times within {WINDOW_SECONDS:.0f} s; see {self.log}"
            )
        out.print(f"[yellow]the {self.name} ended with status {status}; started again[/yellow]", highlight=False)
        self.process = self.start()


def keep_up(out: Console, kept: list[Kept]) -> None:
    """Look after the processes until Ctrl-C or SIGTERM, then stop them, the last one first."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    try:
        while True:
            for each in kept:
                each.look(out, time.monotonic())
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        out.print("stopping")
    finally:
        for each in reversed(kept):
            stop(each.process)
