"""The MLflow server of `igrpo ui`, started: no command line of the machine holds the address of its database."""

import secrets
from pathlib import Path

from flows import servers
from flows.ui import mlflow_command, mlflow_environment
from storage.mlflow_client import client


def processes_with(secret, name):
    """The processes whose file ``name`` under /proc (cmdline, environ) holds the secret."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        try:
            if secret.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it ended, or belongs to somebody else
            continue
    return found


def test_the_database_s_address_reaches_the_server_by_its_environment_alone(tmp_path, monkeypatch):
    secret = secrets.token_hex(16)
    folder = tmp_path / secret
    folder.mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    client(tmp_path)
    port, log = servers.free_port(), tmp_path / "log"
    process = servers.start_guarded(mlflow_command(tmp_path, port), log, mlflow_environment(tmp_path))
    try:
        servers.wait_until_healthy(process, f"http://127.0.0.1:{port}/health", log, name="MLflow")
        assert processes_with(str(port), "cmdline")  # the server is among those looked at
        assert processes_with(secret, "environ")
        assert processes_with(secret, "cmdline") == []
    finally:
        servers.stop(process)
    assert not (tmp_path / "mlflow.db").exists()
