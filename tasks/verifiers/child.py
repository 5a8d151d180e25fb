"""One verifier process as its parent sees it: started, asked with a deadline, killed."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from tasks.runtime.environment import single_threaded
from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.verdict import ScoreItem, Verdict, from_json

START_SECONDS = 120.0
"""For the imports of a fresh process, which cost seconds and more on a busy machine; they do not count for any row."""

ROOT = Path(__file__).resolve().parents[2]


class ChildTimeout(Exception):
    """No answer within the time."""


class ChildDied(Exception):
    """The process ended; the message says how."""


class Child:
    """A running worker. Its own process group; its stdout is a pipe that only answers travel on."""

    def __init__(self, configs: Sequence[VerifierConfig]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.verifiers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
            env=single_threaded(),
        )
        self._buffer = b""
        self._send(TypeAdapter(list[VerifierConfig]).dump_json(list(configs)))

    def wait_ready(self) -> None:
        """Return once the imports are done."""
        self._read_line(START_SECONDS)

    def ask(self, verifier: int, item: ScoreItem, deadline_seconds: float) -> Verdict:
        """The verdict of the verifier at that position.

        Raises:
            ChildTimeout, ChildDied: the process can not be used any more; ``kill`` it.
        """
        self._send(json.dumps({"verifier": verifier, "item": asdict(item)}).encode())
        return from_json(self._read_line(deadline_seconds))

    def kill(self) -> None:
        """End the process and all it started, and reap it."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # bytes that the dead process never read
                    pass

    @property
    def pid(self) -> int:
        return self._process.pid

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ChildDied(self._how_it_ended()) from error

    def _read_line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise ChildTimeout(f"no verdict within {seconds:g} s")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise ChildDied(self._how_it_ended())
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        return f"the verifier process ended with status {self._process.wait()}"
