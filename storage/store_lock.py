"""One lock for the whole store: a branch takes refs into other lineages, and what takes weights away must not run then."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import LineageBusy

STORE_LOCK = "store.lock"


@contextmanager
def hold_store(root: Path) -> Iterator[None]:
    """Hold the store's lock while the block runs; it is given back when the process dies.

    Raises:
        LineageBusy: another process branches or collects now.
    """
    descriptor = os.open(root / STORE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LineageBusy(
                f"another process holds {root / STORE_LOCK} (igrpo branch or igrpo gc); try again when it is done"
            ) from error
        yield
    finally:
        os.close(descriptor)
