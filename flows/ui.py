"""The Prefect and MLflow servers over one store."""

import json
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from flows.access import Access, open_access
from flows.keeping import Kept, keep_up
from flows.servers import SERVERS_FILE, ServerError, is_healthy, wait_until_healthy
from storage.files import write_atomic
from storage.mlflow_client import SETTINGS, client, tracking_uri
from tasks.runtime.guarded import HOST, free_port, start_guarded, stop

DATABASE_TIMEOUT_SECONDS = "60"
"""Runs, a worker and the scheduler share one SQLite file: on a slow disk Prefect's 10 s end in "database is locked"."""


def serve(out: Console, root: Path, prefect_port: int, mlflow_port: int, host: str = HOST) -> None:
    """Start both servers, print their addresses, and stop them on Ctrl-C or SIGTERM.

    A port that is taken is replaced by a free one. The addresses are noted in the store, where `igrpo run` finds them.

    Raises:
        ValueError: ``host`` is not of this machine alone, and no password is set.
    """
    kept = start_servers(out, root, prefect_port, mlflow_port, open_access(host, os.environ))
    out.print("Ctrl-C stops both")
    try:
        keep_up(out, kept)
    finally:
        (root / SERVERS_FILE).unlink(missing_ok=True)


def start_servers(out: Console, root: Path, prefect_port: int, mlflow_port: int, access: Access) -> list[Kept]:
    """Both servers, once they answer; their addresses are printed and noted.

    Raises:
        ServerError: one did not start; neither runs.
    """
    prefect_port, mlflow_port = _usable(out, access.host, prefect_port), _usable(out, access.host, mlflow_port)
    prefect_url, mlflow_url = f"http://{access.address}:{prefect_port}", f"http://{access.address}:{mlflow_port}"
    environment = {
        "PREFECT_SERVER_DATABASE_TIMEOUT": DATABASE_TIMEOUT_SECONDS,
        **access.prefect_environment,
        "PREFECT_API_URL": f"{prefect_url}/api",
        "PREFECT_UI_API_URL": f"{prefect_url}/api",
    }
    command = ["-m", "prefect", "server", "start", "--host", access.host, "--port", str(prefect_port)]
    prefect_log, mlflow_log = root / "prefect" / "server.log", root / "mlflow-server.log"

    def prefect_server() -> subprocess.Popen[bytes]:
        return start_guarded([sys.executable, *command], prefect_log, environment)

    def mlflow_server() -> subprocess.Popen[bytes]:
        return start_guarded(
            mlflow_command(root, mlflow_port, access),
            mlflow_log,
            {**mlflow_environment(root), **access.mlflow_environment(root)},
        )

    with out.status("starting the servers (about 30 s)"):
        client(root)  # makes the database before a server and a run could both try
        prefect, mlflow = prefect_server(), mlflow_server()
        try:
            wait_until_healthy(prefect, f"{prefect_url}/api/health", prefect_log, name="Prefect")
            wait_until_healthy(mlflow, f"{mlflow_url}/health", mlflow_log, name="MLflow")
        except ServerError:
            stop(prefect)
            stop(mlflow)
            raise
    noted = {"prefect": prefect_url, "mlflow": mlflow_url, "pid": str(os.getpid())}
    write_atomic(root / SERVERS_FILE, json.dumps(noted).encode())
    out.print(f"Prefect  [bold]{prefect_url}[/bold]\nMLflow   [bold]{mlflow_url}[/bold]", highlight=False)
    return [
        Kept("Prefect server", prefect_server, prefect_log, prefect),
        Kept("MLflow server", mlflow_server, mlflow_log, mlflow),
    ]


MLFLOW_ENVIRONMENT = {
    **SETTINGS,
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # 15 processes and 2.3 GB otherwise
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    "MLFLOW_MODEL_CATALOG_URI": "",
}


def mlflow_environment(root: Path) -> dict[str, str]:
    """What the server is told apart from its command line, which every user of the machine can read: the address of a
    database may hold a password."""
    return {**MLFLOW_ENVIRONMENT, "MLFLOW_BACKEND_STORE_URI": tracking_uri(root)}


def mlflow_command(root: Path, port: int, access: Access = Access()) -> list[str]:  # noqa: B008  # frozen
    """The MLflow server over a store, with one worker process."""
    allowed = ",".join(f"{name}:{port}" for name in dict.fromkeys(["localhost", HOST, access.address]))
    return [
        sys.executable, "-m", "mlflow", "server", "--host", access.host, "--port", str(port), "--workers", "1",
        "--default-artifact-root", (root / "mlflow-artifacts").as_uri(),
        "--allowed-hosts", allowed, *access.mlflow_arguments,
    ]  # fmt: skip


def _usable(out: Console, host: str, port: int) -> int:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            other = free_port()
            who = " (a Prefect server)" if is_healthy(f"http://{HOST}:{port}/api/health") else ""
            out.print(f"[yellow]port {port} is taken{who}; using {other}[/yellow]", highlight=False)
            return other
    return port
