"""The connection to MLflow: imported late (it costs seconds), quiet, and without anything that calls home."""

import fcntl
import os
from functools import cache
from pathlib import Path
from typing import Any

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


def tracking_uri(root: Path) -> str:
    """MLFLOW_TRACKING_URI when it is set, else the SQLite database in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / DATABASE}"


@cache
def _client(uri: str, lock: Path) -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow

    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    # Two processes that open a fresh database at once both migrate it, and at least one fails.
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        client.search_experiments(max_results=1)
    return client


def client(root: Path) -> Any:
    """The ``MlflowClient`` of a store; the database is made on first use."""
    return _client(tracking_uri(root), root / "mlflow.lock")


def of(place: Place) -> Any:
    return client(Path(place.root))


def escaped(value: str) -> str:
    """A value inside single quotes of a search filter."""
    return value.replace("\\", "\\\\").replace("'", "\\'")
