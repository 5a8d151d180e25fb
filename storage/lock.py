"""One run per lineage: an operating-system lock that dies with its owner, and a fencing token that every commit checks."""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage import files, object_lock, tracking_copy, working_copy
from storage.errors import LineageBusy, LostLock, StorageError
from storage.manifest import utc_now
from storage.refs import Place, check_lineage_name

log = logging.getLogger(__name__)

LOCK_FILE = "lock"
HOLDER_FILE = "holder.json"
PATIENCE_SECONDS = 0.5
SECONDS_BETWEEN_TRIES = 0.1


def read_holder(lineage_folder: Path) -> dict[str, Any]:
    """The record of the last holder ({} when there never was one)."""
    path = lineage_folder / HOLDER_FILE
    cure = "delete it once no run of this lineage is alive"
    return files.read_json(path, cure=cure) if path.is_file() else {}


def require_token(place: Place) -> None:
    """LostLock unless the lineage's newest token is this run's.

    A process that was believed dead (a paused machine, a lock on a file system without locks) may wake up after
    another took over; its commits must fail.
    """
    newest = read_holder(place.lineage_folder).get("token")
    if newest is None:
        raise LostLock(f"the folder of lineage {place.lineage!r} was removed under this run; nothing was committed")
    if newest != place.token:
        raise LostLock(
            f"lineage {place.lineage!r} now belongs to the run with token {newest}, this one has {place.token}; "
            "nothing was committed. Run again once the other has ended."
        )
    object_lock.require(Path(place.root), place.lineage, place.token)


@contextmanager
def hold(root: Path, lineage: str, *, wait_seconds: float = 0.0) -> Iterator[Place]:
    """Hold a lineage for this process; gives the Place of its bootstrap with a token higher than every earlier one.

    The lock is a ``flock`` on ROOT/LINEAGE/lock: the kernel drops it when the process ends in whatever way, so a
    ``kill -9`` leaves nothing to clean up. Child processes do not inherit it.

    Tokens grow with the clock (microseconds), not from 1: a run whose folder was deleted and made again by another must
    not find its own number there.

    In the working copy of an object store, the lock object there is taken too (``object_lock``), and the records are made
    those of the store before the block begins.

    Args:
        wait_seconds: how long to wait for another holder to end; whoever comes first after that has it, in no order.

    Raises:
        LineageBusy: a live process still holds it; names that process.
        StorageError: the file system has no locks.
    """
    folder = root.resolve() / check_lineage_name(lineage)
    files.make_folder(folder)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take(descriptor, folder, lineage, wait_seconds)
        floor = max(time.time_ns() // 1000, int(read_holder(folder).get("token", 0)) + 1)
        with object_lock.held(folder.parent, lineage, floor) as token:
            working_copy.pull(folder.parent, lineage)
            tracking_copy.pull_database(folder.parent)
            holder = {"token": token, "pid": os.getpid(), "host": socket.gethostname(), "since": utc_now()}
            files.write_atomic(folder / HOLDER_FILE, json.dumps(holder).encode())
            yield Place(root=str(folder.parent), lineage=lineage, token=token)
            tracking_copy.send_database(folder.parent)
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path, lineage: str, wait_seconds: float) -> None:
    """Take the lock within half a second at least: a ``probe`` holds it for an instant, and a new holder signs just after it."""
    deadline = time.monotonic() + max(wait_seconds, PATIENCE_SECONDS)
    is_told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise LineageBusy(_who_holds(folder, lineage)) from error
            if wait_seconds and not is_told:
                log.warning("waiting at most %.0f s: %s", wait_seconds, _who_holds(folder, lineage))
                is_told = True
            time.sleep(SECONDS_BETWEEN_TRIES)
        except OSError as error:
            raise StorageError(
                f"{folder} stands on a file system without locks ({error}); put the store on another (IGRPO_HOME)"
            ) from error
        else:
            return


def _who_holds(folder: Path, lineage: str) -> str:
    holder = read_holder(folder)
    who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')} since {holder.get('since', '?')}"
    return f"lineage {lineage!r} is held by {who}; wait for it, stop it, or take another name (--lineage NAME)"


def probe(root: Path, lineage: str) -> None:
    """LineageBusy when a live process holds the lineage now: a courtesy before long preparations, not a lock."""
    _probe_here(root, lineage)
    object_lock.probe(root, lineage)


def _probe_here(root: Path, lineage: str) -> None:
    path = root / lineage / LOCK_FILE
    if not path.is_file():
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LineageBusy(_who_holds(path.parent, lineage)) from error
    finally:
        os.close(descriptor)


def refresh(root: Path) -> None:
    """In the working copy of an object store, fetch the records that others made; lineages held on this machine are left alone."""
    if working_copy.store_behind(root) is None:
        return
    held = []
    for path in root.glob(f"*/{LOCK_FILE}"):
        try:
            _probe_here(root, path.parent.name)
        except LineageBusy:
            held.append(path.parent.name)
    working_copy.pull_all(root, held)
    if not held:
        tracking_copy.pull_database(root)
