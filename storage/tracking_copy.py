"""MLflow's SQLite database of a working copy, kept in the object store beside what it describes."""

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from storage import files
from storage.errors import StorageError
from storage.mlflow_client import DATABASE, uses_own_database
from storage.object_store import ObjectStore, Refused
from storage.working_copy import store_behind

ETAG_FILE = "mlflow.etag"
_BESIDE = ("-journal", "-wal", "-shm")


def send_database(root: Path) -> None:
    """Upload the database as it is now, over the one that this working copy last saw (nothing to do with a server's).

    Raises:
        StorageError: another machine has recorded in the meantime: one SQLite file can not hold both.
    """
    store, path = store_behind(root), root / DATABASE
    if store is None or not uses_own_database(root) or not path.is_file():
        return
    whole = root / f"{files.ASIDE}{DATABASE}-{secrets.token_hex(4)}"
    try:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(whole),))
        data = whole.read_bytes()
    finally:
        whole.unlink(missing_ok=True)
    known = _known(root)
    try:
        etag = store.put_over(DATABASE, data, known) if known else store.put_new(DATABASE, data)
    except Refused as error:
        raise StorageError(
            f"another machine recorded into {store.url}/{DATABASE} while this run did; machines that work on one store at the same "
            "time need one MLflow server: set MLFLOW_TRACKING_URI on all of them, then run again"
        ) from error
    files.write_atomic(root / ETAG_FILE, etag.encode())


def pull_database(root: Path) -> None:
    """Take the database of the object store when another machine wrote it.

    What this machine recorded after the last committed record goes with it: that iteration is recorded again.
    """
    store = store_behind(root)
    if store is None or not uses_own_database(root):
        return
    etag = store.list(DATABASE).get(DATABASE)
    if etag is None or (etag == _known(root) and (root / DATABASE).is_file()):
        return
    _replace(store, root)
    files.write_atomic(root / ETAG_FILE, etag.encode())


def _replace(store: ObjectStore, root: Path) -> None:
    path = root / DATABASE
    aside = root / f"{files.ASIDE}{DATABASE}-{secrets.token_hex(4)}"
    try:
        if store.download(DATABASE, aside):
            for ending in _BESIDE:  # of the old file: SQLite would apply them to the new one
                path.with_name(f"{DATABASE}{ending}").unlink(missing_ok=True)
            os.replace(aside, path)
            files.fsync_folder(root)
    finally:
        aside.unlink(missing_ok=True)


def _known(root: Path) -> str:
    path = root / ETAG_FILE
    return path.read_text() if path.is_file() else ""
