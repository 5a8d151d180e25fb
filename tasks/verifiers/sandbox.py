"""One confined Python process as its caller sees it: started, spoken to with a deadline, killed with all it started."""

import contextlib
import fcntl
import json
import marshal
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tasks.verifiers.call_kinds import Isolation
from tasks.verifiers.isolation import ENVIRONMENT, SANDBOX_CURE, Limits, SandboxError, command
from tasks.verifiers.sandboxed import stdin_program
from tasks.verifiers.seccomp import call_filter

START_SECONDS = 30.0
"""For a sandbox to stand, on a busy machine; it does not count for the program."""
END_SECONDS = 5.0
ARRANGE_SECONDS = 1.0

STOP_SIGNALS = {"sandbox": signal.SIGKILL, "process": signal.SIGTERM}
"""For what was started; without a sandbox it must still end the program's processes, and can not when it is killed."""


F_ADD_SEALS, EVERY_SEAL = 1033, 0xF  # fcntl.h; the module names them from Python 3.14 on


class OutOfTime(Exception):
    """The process did not answer or end in time."""


class OutputTooLong(Exception):
    """The process wrote more than it may."""


class Ended(Exception):
    """The process ended by itself; the message says how."""


class Sandbox:
    """A process that runs one of the modules of ``sandboxed``; what it imports and runs can not reach this process.

    Args:
        module: what runs inside; its ``main`` is called.
        brief: instructions for it, as JSON. The program can not see them before it runs, nor another sandbox's at all.
        limits: of each of its processes.
        isolation: "sandbox" or "process".
        stdin: what its standard input holds; None: lines that ``write_line`` sends.
    """

    def __init__(
        self,
        module: ModuleType,
        brief: dict[str, Any],
        limits: Limits,
        isolation: Isolation,
        stdin: bytes | None = None,
    ) -> None:
        self._buffer = bytearray()
        self._reports = bytearray()
        self._is_closed = False
        self._init: int | None = None
        self._stop_signal = STOP_SIGNALS[isolation]
        with contextlib.ExitStack() as inherited:
            instructions = inherited.enter_context(
                memory_file(marshal.dumps({**brief, "limits": limits.of_resources()}))
            )
            self._ready, ready = os.pipe()
            inherited.callback(os.close, ready)
            self._status, status = os.pipe()
            inherited.callback(os.close, status)
            rules = call_filter()
            calls = inherited.enter_context(memory_file(rules)) if rules else None
            given = inherited.enter_context(memory_file(stdin)) if stdin is not None else None
            try:
                self._process = subprocess.Popen(
                    command(isolation, module.__name__, instructions, ready, status=status, call_filter=calls),
                    stdin=subprocess.PIPE if given is None else given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[each for each in (instructions, ready, status, calls) if each is not None],
                    env=ENVIRONMENT,
                    cwd="/",
                    bufsize=0,
                )
            except BaseException as error:
                os.close(self._ready)
                os.close(self._status)
                if isinstance(error, OSError):
                    raise SandboxError(f"the sandbox can not be started: {error}") from error
                raise
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._pidfd = os.pidfd_open(self._process.pid)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_ready(self) -> None:
        """Return when the process has its limits and is about to do its work.

        Raises:
            SandboxError: it does not come to that; the message holds what it printed.
        """
        if not self._stands(time.monotonic() + START_SECONDS):
            assert self._process.stderr is not None
            self.kill_processes()
            said = os.read(self._process.stderr.fileno(), 2000).decode("utf-8", "replace").strip()
            raise SandboxError(f"the sandbox does not stand: {said[-300:] or 'it says nothing'}; {SANDBOX_CURE}")

    def _stands(self, deadline: float) -> bool:
        """Wait for the byte that says so, or for the end. The first process inside is held as soon as it is known.

        Its parent may be killed before it has asked to die with it: then it waits for ever, unless it is killed from here.
        """
        while self._init is None and time.monotonic() < deadline:
            found = select.select([self._ready, self._status, self._pidfd], [], [], deadline - time.monotonic())[0]
            if self._ready in found or self._pidfd in found:
                break
            self._find_init()
        found = select.select([self._ready, self._pidfd], [], [], max(deadline - time.monotonic(), 0))[0]
        self._find_init()
        return self._ready in found and os.read(self._ready, 1) == b"."

    def write_line(self, line: bytes, deadline: float) -> None:
        """Send a line.

        Raises:
            OutOfTime, Ended: it is not read.
        """
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        rest = memoryview(line + b"\n")
        while rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [descriptor], [], left)[1]:
                raise OutOfTime("it does not read")
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise self._ended() from error

    def read_line(self, deadline: float, max_bytes: int) -> bytes:
        """The next line, without its end.

        Raises:
            OutOfTime, OutputTooLong, Ended: there is none.
            SandboxError: the process was killed from outside.
        """
        while b"\n" not in self._buffer:
            if not self._read_some(deadline, max_bytes):
                raise self._ended()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return bytes(line)

    def read_to_end(self, deadline: float, max_bytes: int) -> tuple[bytes, int]:
        """All that the process printed until it ended, and its exit status. What it leaves running is not waited for.

        Raises:
            OutOfTime, OutputTooLong: it goes on.
            SandboxError: the process was killed from outside.
        """
        while self._read_some(deadline, max_bytes):
            pass
        if not _is_readable(self._pidfd, deadline - time.monotonic()):  # it may close its output and go on
            raise OutOfTime("it takes too long to end")
        status = self._exit_status()
        self.kill_processes()
        while _is_readable(self._output, 0) and self._read_chunk(max_bytes):
            pass
        return bytes(self._buffer), status

    def kill_processes(self) -> None:
        """Kill everything inside and wait for its end; may be repeated.

        The first process inside is killed, which ends the others; those outside it then end by themselves, reaped.
        """
        # One that is killed while it starts may not have arranged yet to die with its parent: let it get that far.
        _is_readable(self._status, 0 if self._init is not None or self._process.poll() is not None else ARRANGE_SECONDS)
        self._find_init()
        with contextlib.suppress(ProcessLookupError):
            if self._init is not None:
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            elif self._process.poll() is None:
                self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._init is not None and not _is_readable(self._init, END_SECONDS):
            raise SandboxError("a killed sandbox does not end")

    def kill(self) -> None:
        """Kill everything inside and close every pipe; may be repeated."""
        if self._is_closed:
            return
        try:
            self.kill_processes()
        finally:
            self._is_closed = True
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            for descriptor in (self._ready, self._status, self._pidfd, self._init):
                if descriptor is not None:
                    os.close(descriptor)

    def _read_some(self, deadline: float, max_bytes: int) -> bool:
        """Read what there is; False at the end of the output, or of the process with nothing left in the pipe."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime("it takes too long")
        found = select.select([self._output, self._pidfd], [], [], left)[0]
        if not found:
            raise OutOfTime("it takes too long")
        return self._read_chunk(max_bytes) if self._output in found else False

    def _read_chunk(self, max_bytes: int) -> bool:
        chunk = os.read(self._output, 1 << 16)
        self._buffer += chunk
        if len(self._buffer) > max_bytes:
            raise OutputTooLong(f"it wrote more than {max_bytes} bytes")
        return bool(chunk)

    def _read_reports(self) -> dict[str, Any]:
        """What the process outside the sandbox has said so far: the process id inside, and how it ended."""
        while _is_readable(self._status, 0) and (chunk := os.read(self._status, 4096)):
            self._reports += chunk
        lines = [json.loads(line) for line in self._reports.splitlines() if line.endswith(b"}")]
        return {name: value for line in lines for name, value in line.items()}

    def _find_init(self) -> None:
        """Hold the first process inside by a descriptor, so that its number can not come to mean another one."""
        if self._init is None and (pid := self._read_reports().get("child-pid")) and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._init = os.pidfd_open(pid)

    def _exit_status(self) -> int:
        self._process.wait()
        status = self._read_reports().get("exit-code")
        if status is None:
            raise SandboxError(f"the sandbox was ended from outside (status {self._process.returncode})")
        return int(status)

    def _ended(self) -> Ended:
        if not _is_readable(self._pidfd, 0.2):
            return Ended("it closed its output")
        return Ended(f"it ended with status {self._exit_status()}")


def sandbox_fault() -> str:
    """Why no sandbox can be had on this machine, with the cure; "" when one stands."""
    try:
        with Sandbox(stdin_program, {"program": ""}, Limits(1 << 28, 2), "sandbox", b"") as sandbox:
            sandbox.wait_ready()
    except SandboxError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """A descriptor of a file in memory that nobody can change any more."""
    descriptor = os.memfd_create("given", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(descriptor, F_ADD_SEALS, EVERY_SEAL)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], max(seconds, 0))[0])
