"""The connection to MLflow: imported late (it costs seconds), quiet, and without anything that calls home."""

import fcntl
import os
import secrets
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from storage.files import ASIDE, write_atomic
from storage.refs import Place

SETTINGS = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_PRINT_MODEL_URLS_ON_CREATION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # The defaults block a call for 246 s when the server is gone: 7 retries, doubling.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}

DATABASE = "mlflow.db"
SQLITE = "sqlite:///"


def tracking_uri(root: Path) -> str:
    """MLFLOW_TRACKING_URI when it is set, else the SQLite database in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{root / DATABASE}"


def client(root: Path) -> Any:
    """The ``MlflowClient`` of a store; the database is made on first use."""
    uri = tracking_uri(root)
    found = _client(uri)
    _point_mlflow_at(uri)
    return found


def _point_mlflow_at(uri: str) -> None:
    """Parts of MLflow look models up through its global address, whatever client asks.

    Setting it also sets MLFLOW_TRACKING_URI for this process and its children, and the next store would be recorded in the
    first one's database: so the environment is put back.
    """
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    if before is None:
        os.environ.pop("MLFLOW_TRACKING_URI", None)
    else:
        os.environ["MLFLOW_TRACKING_URI"] = before


@cache
def _client(uri: str) -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow

    if uri.startswith(SQLITE):
        _ensure_database(Path(uri.removeprefix(SQLITE)))
    return mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)


def _ensure_database(path: Path) -> None:
    """Make the database whole or not at all.

    MLflow builds its tables in dozens of migrations that take seconds. Two processes in them at once fail, and one that is
    killed in them leaves a database that can not be opened again: so they run aside, one process at a time.
    """
    if path.exists():
        return
    import mlflow

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in path.parent.glob(f"{ASIDE}{path.name}-*"):
            left.unlink()
        if path.exists():
            return
        built = path.with_name(f"{ASIDE}{path.name}-{secrets.token_hex(4)}")
        whole = built.with_name(f"{built.name}-whole")
        mlflow.MlflowClient(tracking_uri=f"{SQLITE}{built}").search_experiments(max_results=1)
        with closing(sqlite3.connect(built)) as connection:  # MLflow keeps connections of its own to the first file
            connection.execute("VACUUM INTO ?", (str(whole),))
        write_atomic(path, whole.read_bytes())
        for left in (built, whole):
            left.unlink()


def of(place: Place) -> Any:
    return client(Path(place.root))


def escaped(value: str) -> str:
    """A value inside single quotes of a search filter."""
    return value.replace("\\", "\\\\").replace("'", "\\'")
