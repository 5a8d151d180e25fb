"""The Prefect API that a run reports to: a running server when there is one, else one that the run owns."""

import atexit
import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tasks.runtime.guarded import HOST, free_port, start_guarded, stop

DEFAULT_API = f"http://{HOST}:4200/api"
START_TIMEOUT_SECONDS = 180.0
SERVERS_FILE = "servers.json"


class ServerError(Exception):
    """A server did not start; the message names its log."""


@dataclass(frozen=True)
class Api:
    """Where runs are recorded: ``kind`` is "configured", "found" or "owned"."""

    kind: str
    url: str

    def describe(self) -> str:
        return {
            "configured": f"Prefect server {self.url} (PREFECT_API_URL)",
            "found": f"running Prefect server {self.url}",
            "owned": f"Prefect server of this run at {self.url} (ends with it; `igrpo ui` shows its runs)",
        }[self.kind]


def is_healthy(url: str, *, expected: bytes | None = None) -> bool:
    """Whether ``url`` answers 200 within half a second (with the body ``expected`` when given)."""
    try:
        with urllib.request.urlopen(url, timeout=0.5) as answer:  # noqa: S310  # loopback or the user's own setting
            return expected is None or answer.read().strip() == expected
    except (OSError, ValueError):
        return False


def wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path, *, name: str) -> None:
    """Return once ``url`` answers; ServerError when the process ends or the time is over."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if is_healthy(url):
            return
        if process.poll() is not None:
            raise ServerError(f"the {name} server ended with status {process.returncode}; see {log}")
        time.sleep(0.2)
    stop(process)
    raise ServerError(f"the {name} server did not answer within {START_TIMEOUT_SECONDS:.0f} s; see {log}")


def prefect_command(port: int) -> list[str]:
    """The Prefect API without its UI's extra services: what a run needs."""
    return [
        sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app",
        "--host", HOST, "--port", str(port), "--log-level", "warning", "--lifespan", "on",
    ]  # fmt: skip


def ensure_api(root: Path) -> Api:
    """Set PREFECT_API_URL to a server that answers, starting one that this process owns when there is none.

    Looked at in turn: PREFECT_API_URL, the servers that ``igrpo ui`` runs over the same store, the default address.
    Call before importing prefect.
    """
    if url := os.environ.get("PREFECT_API_URL"):
        return Api("configured", url)
    noted = read_servers(root).get("prefect", "")
    for candidate in [f"{noted}/api"] * bool(noted) + [DEFAULT_API]:
        if is_healthy(f"{candidate}/health", expected=b"true"):
            os.environ["PREFECT_API_URL"] = candidate
            return Api("found", candidate)
    url = _start_owned(root)
    os.environ["PREFECT_API_URL"] = url
    return Api("owned", url)


def _start_owned(root: Path) -> str:
    home = Path(os.environ.get("PREFECT_HOME", root / "prefect"))
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    port = free_port()
    url = f"http://{HOST}:{port}/api"
    # Two first starts on a fresh home would both migrate its database, and both fail.
    with (home / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start_guarded(prefect_command(port), log, {"PREFECT_API_URL": url})
        atexit.register(stop, process)
        wait_until_healthy(process, f"{url}/health", log, name="Prefect")
    return url


def read_servers(root: Path) -> dict[str, str]:
    """The addresses that ``igrpo ui`` noted, {} when it does not run (or left a torn note)."""
    try:
        noted = json.loads((root / SERVERS_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def mlflow_address(root: Path) -> str:
    """Where a person reads what MLflow has of the store: MLFLOW_TRACKING_URI, or what ``igrpo ui`` serves; "" for neither."""
    configured = os.environ.get("MLFLOW_TRACKING_URI", "")
    return configured.rstrip("/") if configured.startswith("http") else read_servers(root).get("mlflow", "")
