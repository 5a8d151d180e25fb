"""Servers that this process owns: each in a session of its own, and gone when this process is gone, however it went."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"
STOP_TIMEOUT_SECONDS = 10.0
GUARD = Path(__file__).with_name("guard.py")


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def start_guarded(command: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a server in its own process group that dies with this process; its output is added to ``log``.

    Args:
        env: what differs from this process's environment.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), *command],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **env},
        )


def stop(process: subprocess.Popen[bytes], timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> None:
    """End a guarded server: SIGTERM, then the end of its pipe kills all that is left."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            pass
    if process.stdin is not None:
        process.stdin.close()
    process.wait()
