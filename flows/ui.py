"""The Prefect and MLflow servers over one store."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from flows.servers import SERVERS_FILE, ServerError, is_healthy, wait_until_healthy
from storage.files import write_atomic
from storage.mlflow_client import SETTINGS, client, tracking_uri
from tasks.runtime.guarded import HOST, free_port, start_guarded, stop


def serve(out: Console, root: Path, prefect_port: int, mlflow_port: int) -> None:
    """Start both servers on 127.0.0.1, print their addresses, and stop them on Ctrl-C or SIGTERM.

    A port that is taken is replaced by a free one. The addresses are noted in the store, where `igrpo run` finds them.
    """
    prefect_port, mlflow_port = _usable(out, prefect_port), _usable(out, mlflow_port)
    prefect_url, mlflow_url = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    with out.status("starting the servers (about 30 s)"):
        client(root)  # makes the database before a server and a run could both try
        prefect = start_guarded(
            [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(prefect_port)],
            root / "prefect" / "server.log",
            {"PREFECT_API_URL": f"{prefect_url}/api", "PREFECT_UI_API_URL": f"{prefect_url}/api"},
        )
        mlflow = start_guarded(mlflow_command(root, mlflow_port), root / "mlflow-server.log", MLFLOW_ENVIRONMENT)
        try:
            wait_until_healthy(prefect, f"{prefect_url}/api/health", root / "prefect" / "server.log", name="Prefect")
            wait_until_healthy(mlflow, f"{mlflow_url}/health", root / "mlflow-server.log", name="MLflow")
        except ServerError:
            stop(prefect)
            stop(mlflow)
            raise
    note = root / SERVERS_FILE
    write_atomic(note, json.dumps({"prefect": prefect_url, "mlflow": mlflow_url, "pid": str(os.getpid())}).encode())
    out.print(
        f"Prefect  [bold]{prefect_url}[/bold]\nMLflow   [bold]{mlflow_url}[/bold]\nCtrl-C stops both", highlight=False
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    try:
        while prefect.poll() is None and mlflow.poll() is None:
            time.sleep(0.5)
        raise ServerError(
            f"a server ended by itself; see the logs {root / 'prefect' / 'server.log'} and {root / 'mlflow-server.log'}"
        )
    except KeyboardInterrupt:
        out.print("stopping")
    finally:
        note.unlink(missing_ok=True)
        stop(prefect)
        stop(mlflow)


MLFLOW_ENVIRONMENT = {
    **SETTINGS,
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # 15 processes and 2.3 GB otherwise
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    "MLFLOW_MODEL_CATALOG_URI": "",
}


def mlflow_command(root: Path, port: int) -> list[str]:
    """The MLflow server over a store, with one worker process."""
    allowed = f"localhost:{port},{HOST}:{port}"
    return [
        sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1",
        "--backend-store-uri", tracking_uri(root), "--default-artifact-root", (root / "mlflow-artifacts").as_uri(),
        "--allowed-hosts", allowed,
    ]  # fmt: skip


def _usable(out: Console, port: int) -> int:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            other = free_port()
            who = " (a Prefect server)" if is_healthy(f"http://{HOST}:{port}/api/health") else ""
            out.print(f"[yellow]port {port} is taken{who}; using {other}[/yellow]", highlight=False)
            return other
    return port
