"""Where the store stands."""

import os
from collections.abc import Mapping
from pathlib import Path

from storage.errors import StorageError
from storage.object_store import is_url
from storage.working_copy import open_copy, store_behind


def store_root(env: Mapping[str, str], cwd: Path) -> Path:
    """IGRPO_HOME, or ``runs`` under ``cwd``; absolute, made when it is missing. For ``s3://...``, its working copy.

    Raises:
        StorageError: it is a file, or can not be written to; an address that can not be a store.
    """
    named = env.get("IGRPO_HOME") or "runs"
    if is_url(named):
        return open_copy(named, env)
    try:
        root = cwd / Path(named).expanduser()
    except RuntimeError as error:
        raise StorageError(f"IGRPO_HOME={named!r} names no home folder: {error}; set it to a folder") from error
    if root.exists() and not root.is_dir():
        raise StorageError(f"the store {root} is a file; set IGRPO_HOME to a folder")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"the store {root} can not be made: {error}; set IGRPO_HOME to a folder") from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise StorageError(f"the store {root} can not be written to; set IGRPO_HOME to a folder of your own")
    return root.resolve()


def described(root: Path) -> str:
    """The store as a person knows it: its folder, or its address with the folder of the working copy."""
    store = store_behind(root)
    return str(root) if store is None else f"{store.url} (working copy {root})"
