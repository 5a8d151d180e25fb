"""The connection to MLflow: imported late (it costs seconds), quiet, and without anything that calls home."""

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from storage import files
from storage.refs import Place
from storage.relocation import relocate

SETTINGS = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_PRINT_MODEL_URLS_ON_CREATION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # The defaults block a call for 246 s when the server is gone (7 retries, doubling) and send a creation twice when its
    # answer is lost. What fails stays in the journal and is delivered later, so one attempt of bounded time is enough.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}

DATABASE = "mlflow.db"
_SQLITE = "sqlite:///"
_VARIABLE = "MLFLOW_TRACKING_URI"


def tracking_uri(root: Path) -> str:
    """MLFLOW_TRACKING_URI when it is set, else the SQLite database in the store."""
    return os.environ.get(_VARIABLE) or f"{_SQLITE}{root.resolve() / DATABASE}"


def uses_own_database(root: Path) -> bool:
    """Whether the store's own SQLite database records it, not a server or a database that the user named."""
    return tracking_uri(root) == f"{_SQLITE}{root.resolve() / DATABASE}"


def is_untouched(root: Path) -> bool:
    """Whether nothing was ever recorded from this store (its own database does not exist yet)."""
    uri = tracking_uri(root)
    return uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).exists()


def client(root: Path) -> Any:
    """The ``MlflowClient`` of a store; the database is made on first use.

    MLflow's registry looks logged models up through the global tracking URI, so that is set too. Setting it would also
    set MLFLOW_TRACKING_URI for this process and its children, and every store opened later would be recorded in the
    first one's database: the variable is put back to what the user gave.
    """
    uri = tracking_uri(root)
    made = _client(uri)
    import mlflow

    given = os.environ.get(_VARIABLE)
    mlflow.set_tracking_uri(uri)
    if given is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = given
    return made


def of(place: Place) -> Any:
    return client(Path(place.root))


@cache
def _client(uri: str) -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import mlflow

    if uri.startswith(_SQLITE):
        database = Path(uri.removeprefix(_SQLITE))
        _ensure_database(database)
        relocate(database)
    return mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)


def _ensure_database(path: Path) -> None:
    """Make the database whole or not at all.

    MLflow builds its tables in some forty migrations that take seconds. Two processes in them at once fail, and one
    that is killed in them leaves a database that can never be opened again. So they run aside, one process at a time.
    """
    if path.exists():
        return
    import mlflow

    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_name(f"{path.name}.lock")):
        if path.exists():
            return
        for left in path.parent.glob(f"{files.ASIDE}{path.name}-*"):
            left.unlink()
        built = path.with_name(f"{files.ASIDE}{path.name}-{secrets.token_hex(4)}")
        whole = built.with_name(f"{built.name}-whole")
        mlflow.MlflowClient(tracking_uri=f"{_SQLITE}{built}").search_experiments(max_results=1)
        with closing(sqlite3.connect(built)) as connection:  # MLflow keeps its own connections to the first file
            connection.execute("VACUUM INTO ?", (str(whole),))
        data = whole.read_bytes()
        for left in (built, whole):
            left.unlink()
        files.write_atomic(path, data)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def local_path(location: str) -> Path:
    """The folder behind an artifact location; ValueError when it is not on this machine's file system."""
    parsed = urlparse(location)
    if parsed.scheme not in ("", "file"):
        raise ValueError(f"MLflow keeps these files at {location}, which is not a local folder")
    return Path(unquote(parsed.path))
