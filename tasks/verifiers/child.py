"""One verifier process as its parent sees it: started, written to and read from without waiting, killed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tasks.runtime.environment import single_threaded
from tasks.verifiers import protocol
from tasks.verifiers.kinds import VerifierConfig

ROOT = Path(__file__).resolve().parents[2]
CHUNK_BYTES = 1 << 16
MAX_LAST_WORDS = 300
REAP_SECONDS = 1.0


class Child:
    """A running worker. Its own process group; its stdout is a pipe that only answers travel on."""

    def __init__(self, configs: Sequence[VerifierConfig]) -> None:
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process runs
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.verifiers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            bufsize=0,
            cwd=ROOT,
            start_new_session=True,
            env=single_threaded(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.requests, self.answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        for descriptor in (self.requests, self.answers):
            os.set_blocking(descriptor, False)
        self._unsent = bytearray()
        self._unread = b""
        self.has_ended = False
        self.send(protocol.opening_line(configs, _here()))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_unsent(self) -> bool:
        """Whether the pipe was full before the last request was through."""
        return bool(self._unsent)

    def send(self, line: bytes) -> None:
        """Begin to send a line; what the pipe does not take yet goes with ``send_more``."""
        self._unsent += line
        self.send_more()

    def send_more(self) -> bool:
        """Send what the pipe takes now; whether it took anything. To a process that has ended nothing is sent."""
        before = len(self._unsent)
        while self._unsent:
            try:
                del self._unsent[: os.write(self.requests, self._unsent[:CHUNK_BYTES])]
            except BlockingIOError:
                break
            except BrokenPipeError:
                self._unsent.clear()  # its end is seen, and told, by who reads its answers
        return len(self._unsent) < before

    def lines(self) -> list[bytes]:
        """The whole lines that have arrived. At the end of the process all of them, and ``has_ended`` is set."""
        while not self.has_ended:
            try:
                chunk = os.read(self.answers, CHUNK_BYTES)
            except BlockingIOError:
                break
            self.has_ended = not chunk
            self._unread += chunk
            if len(chunk) < CHUNK_BYTES:
                break
        *whole, self._unread = self._unread.split(b"\n")
        return whole

    def kill(self) -> None:
        """End the process and all it started, and reap it. What it had answered can still be read."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def close(self) -> None:
        """``kill``, and give the pipes back."""
        self.kill()
        self._noise.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def came_to_work(self) -> None:
        """What was printed during the start is no longer of interest."""
        self._noise.truncate(0)

    def was_killed(self) -> bool:
        """For a process whose answers have ended: whether SIGKILL ended it, which no row says of its own accord."""
        try:
            return self._process.wait(REAP_SECONDS) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False

    def how_it_ended(self) -> str:
        """For a process whose answers have ended: its status and, where it never came to work, the last line it printed."""
        try:
            status = f"ended with status {self._process.wait(REAP_SECONDS)}"
        except subprocess.TimeoutExpired:
            status = "closed the pipe of its answers"
        self._noise.seek(0)
        words = self._noise.read()[-CHUNK_BYTES:].decode("utf-8", "replace").strip().splitlines()
        said = f": {words[-1][:MAX_LAST_WORDS]}" if words else ""
        return f"the verifier process {status}{said}"


def _here() -> str:
    """The folder of this process, "" when it is no longer there."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""
