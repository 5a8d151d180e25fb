"""One run per lineage over an object store: a lock object taken by conditional put, renewed, and taken over once it expired."""

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage import working_copy
from storage.errors import LineageBusy, LostLock, StorageError
from storage.object_store import Found, ObjectStore, Refused

log = logging.getLogger(__name__)

LOCK_KEY = "lock.json"
DEFAULT_SECONDS = 60.0
MIN_SECONDS = 3.0
"""IGRPO_LOCK_SECONDS: how long a lock that is not renewed stands. It is renewed after a third of that."""


@dataclass
class _Lock:
    """What this process knows of the lock that it holds; ``etag`` is that of its last renewal."""

    store: ObjectStore
    key: str
    body: dict[str, Any]
    etag: str = ""
    beat: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def data(self, **changes: object) -> bytes:
        self.beat += 1  # every renewal has bytes of its own, so that a put that was sent twice is known again
        return json.dumps({**self.body, "beat": self.beat, **changes}).encode()

    def renew(self) -> None:
        """Prove that the lock is ours and let it stand for another while, in one conditional put."""
        with self.guard:
            try:
                self.etag = self.store.put_over(self.key, self.data(), self.etag)
            except Refused as error:
                # A renewal whose answer never came may have been written: the lock is still ours, under another ETag.
                found = self.store.get(self.key)
                newest = _body(found).get("token")
                if found is None or newest != self.body["token"]:
                    raise LostLock(
                        f"{self.store.url}/{self.key} belongs to the run with token {newest}, this one has "
                        f"{self.body['token']}; nothing was committed. Run again once the other has ended."
                    ) from error
                self.etag = self.store.put_over(self.key, self.data(), found.etag)


_held: dict[tuple[str, str], _Lock] = {}


def lock_seconds() -> float:
    """IGRPO_LOCK_SECONDS (default 60, at least 3): seconds after which a lock that nobody renews is free."""
    given = os.environ.get("IGRPO_LOCK_SECONDS", str(DEFAULT_SECONDS))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not MIN_SECONDS <= seconds < float("inf"):
        raise StorageError(f"IGRPO_LOCK_SECONDS={given!r} is not a number of seconds from {MIN_SECONDS:g} on")
    return seconds


@contextmanager
def held(root: Path, lineage: str, token: int) -> Iterator[int]:
    """Hold the lineage in the object store behind ``root`` too; gives the token: ``token``, or one above every earlier.

    A folder without an object store behind it needs nothing more than its own lock. The caller holds that one, so a lock
    object that names this working copy is of a process that is gone, and is taken over at once; every other one is
    waited for until the store's own clock says that it expired. No clock of this machine is asked.

    Raises:
        LineageBusy: another working copy holds it.
    """
    store = working_copy.store_behind(root)
    if store is None:
        yield token
        return
    working_copy.require_conditional_puts(root, store)
    lock = _take(root, store, f"{lineage}/{LOCK_KEY}", token)
    _held[str(root), lineage] = lock
    thread = threading.Thread(target=_keep, args=(lock, lock.body["seconds"] / 3), name="lineage-lock", daemon=True)
    thread.start()
    try:
        yield lock.body["token"]
    finally:
        lock.ended.set()
        thread.join()
        del _held[str(root), lineage]
        _release(lock)


def _take(root: Path, store: ObjectStore, key: str, token: int) -> _Lock:
    found = store.get(key)
    earlier = _body(found)
    body = {
        "token": max(token, int(earlier.get("token", 0)) + 1),
        "seconds": lock_seconds(),
        "copy": working_copy.copy_of(root),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    if found is not None and not _is_of_here(root, earlier) and (left := seconds_left(found)) > 0:
        raise LineageBusy(_who_holds(store, key, earlier, left))
    lock = _Lock(store, key, body)
    try:
        data = lock.data()
        lock.etag = store.put_new(key, data) if found is None else store.put_over(key, data, found.etag)
    except Refused as error:
        raise LineageBusy(f"another run took {store.url}/{key} at this moment; run again once it has ended") from error
    return lock


def _keep(lock: _Lock, seconds: float) -> None:
    """Renew until the end; a store that does not answer is asked again, a lock that is lost stays lost."""
    while not lock.ended.wait(seconds):
        try:
            lock.renew()
        except LostLock as error:
            log.warning("%s", error)
            return
        except StorageError as error:
            log.warning("the lineage lock could not be renewed: %s", error)


def _release(lock: _Lock) -> None:
    """Mark the lock free; its token stays, so that tokens go on growing. One that was lost is another's."""
    try:
        with lock.guard:
            lock.store.put_over(lock.key, lock.data(is_free=True), lock.etag)
    except StorageError as error:
        log.warning("the lineage lock was not given back, it expires by itself: %s", error)


def require(root: Path, lineage: str, token: int) -> None:
    """LostLock unless the object store still names this run as the holder (a no-op for a plain folder)."""
    store = working_copy.store_behind(root)
    if store is None:
        return
    lock = _held.get((str(root), lineage))
    if lock is not None and lock.body["token"] == token:
        lock.renew()
        return
    newest = _body(store.get(f"{lineage}/{LOCK_KEY}"))
    if newest.get("token") != token or newest.get("is_free"):
        raise LostLock(
            f"lineage {lineage!r} in {store.url} now belongs to the run with token {newest.get('token')}, this one has "
            f"{token}; nothing was committed. Run again once the other has ended."
        )


def probe(root: Path, lineage: str) -> None:
    """LineageBusy when another working copy holds the lineage now."""
    store = working_copy.store_behind(root)
    if store is None or (found := store.get(f"{lineage}/{LOCK_KEY}")) is None:
        return
    body = _body(found)
    if not _is_of_here(root, body) and (left := seconds_left(found)) > 0:
        raise LineageBusy(_who_holds(store, f"{lineage}/{LOCK_KEY}", body, left))


def _is_of_here(root: Path, body: dict[str, Any]) -> bool:
    """Whether the lock was taken from this working copy on this host, whose own lock tells the living from the dead."""
    return bool(body["copy"] == working_copy.copy_of(root) and body.get("host") == socket.gethostname())


def seconds_left(found: Found) -> float:
    """How long the lock still stands if nobody renews it; 0 when it was given back. Ages are whole seconds: one is added."""
    body = _body(found)
    return 0.0 if body.get("is_free") else max(0.0, float(body["seconds"]) + 1 - found.age)


def _body(found: Found | None) -> dict[str, Any]:
    if found is None:
        return {}
    try:
        body = json.loads(found.data)
        if {"token", "seconds", "copy"} <= body.keys():
            return dict(body)
    except (ValueError, AttributeError):
        pass
    raise StorageError(
        f"{LOCK_KEY} of the lineage is not a lock ({len(found.data)} bytes); delete it once no run is alive"
    )


def _who_holds(store: ObjectStore, key: str, body: dict[str, Any], left: float) -> str:
    return (
        f"lineage {key.partition('/')[0]!r} in {store.url} is held by process {body.get('pid', '?')} on "
        f"{body.get('host', '?')}; wait for it, stop it, or take another name (--lineage NAME). If that run is dead, its lock "
        f"is free in {left:.0f} s"
    )
