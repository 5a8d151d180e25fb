"""The local working copy of an object root: what counts stands in the object store, what is worked on in a folder."""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from storage import files
from storage.digests import sha256_of_file
from storage.errors import CorruptArtifact, LostLock, StorageError
from storage.object_store import ObjectStore, Refused, parse

NOTE = "remote.json"
STORE_KEY = "store.json"
NUM_TRANSFERS = 8
"""Files that are sent or fetched at a time."""
_MANIFEST = "manifest.json"
_KEPT = re.compile(
    r"[^/]+/(lineage|request|summary|versions)\.json|[^/]+/decisions/\d+\.json|(.+/)record/record\.json|.+/manifest\.json"
)
"""What is fetched without being asked for: the manifests and the small records. Tables and weights come when they are read."""
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class PartLike(Protocol):
    """A file of a committed folder: name relative to it, bytes, sha256 in hex."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...


def open_copy(url: str, env: Mapping[str, str]) -> Path:
    """The folder in which the store at ``url`` is worked on: IGRPO_CACHE, or ``~/.cache/igrpo``, and a hash of the address.

    Raises:
        StorageError: no address of an object store, or a folder that belongs to another one.
    """
    store = parse(url)
    base = Path(env.get("IGRPO_CACHE") or Path.home() / ".cache" / "igrpo").expanduser().absolute()
    root = (base / hashlib.sha256(store.url.encode()).hexdigest()[:16]).resolve()
    note = root / NOTE
    if not note.is_file():
        files.write_atomic(note, json.dumps({"url": store.url, "copy": secrets.token_hex(16)}).encode())
    if (noted := _note(root)["url"]) != store.url:
        raise StorageError(
            f"{root} is the working copy of {noted}, not of {store.url}; set IGRPO_CACHE to another folder"
        )
    return root


def store_behind(root: Path) -> ObjectStore | None:
    """The object store that ``root`` is the working copy of, None for a plain folder."""
    return parse(_note(root)["url"]) if (root / NOTE).is_file() else None


def copy_of(root: Path) -> str:
    """What tells this working copy from every other: 32 hex digits, made with it."""
    return _note(root)["copy"]


def _note(root: Path) -> dict[str, str]:
    note = files.read_json(root / NOTE, cure=f"delete {root}, it is fetched again")
    return {"url": str(note["url"]), "copy": str(note["copy"])}


def _behind(path: Path) -> tuple[ObjectStore, Path] | None:
    """The object store and the root of the working copy that ``path`` is in, None for a plain folder."""
    for root in path.parents:
        if (store := store_behind(root)) is not None:
            return store, root
    return None


def require_conditional_puts(root: Path, store: ObjectStore) -> None:
    """Claim the address once, and see that the store refuses a second claim: without that no lock is one.

    References name files by path, so every machine has to work at the same one.

    Raises:
        StorageError: the server ignores If-None-Match, or the store is worked on under another path.
    """
    claim = json.dumps({"format": 1, "path": str(root)}).encode()
    found = store.get(STORE_KEY)
    if found is None:
        try:
            store.put_new(STORE_KEY, claim)
        except Refused:  # another machine's first run, at the same moment
            pass
    try:
        store.put_new(STORE_KEY, claim + b"\n")
    except Refused:
        pass
    else:
        store.delete(STORE_KEY)
        raise StorageError(
            f"the server of {store.url} ignores If-None-Match, so that two runs could hold one lineage; "
            "take a server with conditional puts (S3 has them since 2024), or a folder as IGRPO_HOME"
        )
    found = store.get(STORE_KEY)
    path = None if found is None else json.loads(found.data).get("path")
    if path != str(root):
        raise StorageError(
            f"{store.url} is worked on under {path}, this machine has {root}: references name files by path. Set IGRPO_CACHE to "
            f"{Path(str(path)).parent} here"
        )


def send_parts(folder: Path, aside: Path, parts: Iterable[PartLike]) -> None:
    """Upload the files of a folder that is about to be committed as ``folder``; they do not count before its manifest."""
    if (behind := _behind(folder)) is None:
        return
    store, root = behind
    base = folder.relative_to(root).as_posix()
    with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
        list(pool.map(lambda part: store.upload(aside / part.name, f"{base}/{part.name}"), parts))


def send_manifest(folder: Path, aside: Path) -> None:
    """Upload the manifest: from here on the stage is done.

    Raises:
        LostLock: another run committed this stage.
    """
    if (behind := _behind(folder)) is None:
        return
    store, root = behind
    try:
        store.put_new(f"{folder.relative_to(root).as_posix()}/{_MANIFEST}", (aside / _MANIFEST).read_bytes())
    except Refused as error:
        raise LostLock(f"{store.url} already holds a commit of {folder}: another run made it; run again") from error


def fetch_manifest(folder: Path) -> None:
    """The manifest of a folder that is not here but was committed to the object store.

    It is of another lineage, which nobody asked for yet; or this machine sent it, and the answer was lost or the disk full.
    """
    if not folder.exists() and (behind := _behind(folder)) is not None:
        store, root = behind
        if (found := store.get(f"{folder.relative_to(root).as_posix()}/{_MANIFEST}")) is not None:
            files.write_atomic(folder / _MANIFEST, found.data)


def send_file(path: Path) -> None:
    """Upload a small file that was just replaced (a no-op in a plain folder)."""
    if (behind := _behind(path)) is not None:
        store, root = behind
        store.put(path.relative_to(root).as_posix(), path.read_bytes())


def remove(path: Path) -> None:
    """Delete the object of a file (a no-op in a plain folder)."""
    if (behind := _behind(path)) is not None:
        store, root = behind
        store.delete(path.relative_to(root).as_posix())


def forget(folder: Path) -> None:
    """Let every stage in and below a folder count as not done: its manifests go, the parts are written over later."""
    if (behind := _behind(folder)) is not None:
        store, root = behind
        for key in store.list(f"{folder.relative_to(root).as_posix()}/"):
            if key.endswith(f"/{_MANIFEST}"):
                store.delete(key)


def fetch_missing(folder: Path, parts: Iterable[PartLike]) -> None:
    """Fetch the parts of a committed folder that are not here with their size, each checked by its sha256.

    Raises:
        CorruptArtifact: the object is not what the manifest lists.
    """
    missing = [part for part in parts if not _is_here(folder / part.name, part.size)]
    if not missing or (behind := _behind(folder)) is None:
        return
    store, root = behind
    base = folder.relative_to(root).as_posix()
    with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
        list(pool.map(lambda part: _fetch(store, f"{base}/{part.name}", root, part), missing))


def _is_here(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _fetch(store: ObjectStore, key: str, root: Path, part: PartLike) -> None:
    path = _inside(root, key)
    files.make_folder(path.parent)
    aside = path.with_name(f"{files.ASIDE}{path.name}-{secrets.token_hex(4)}")
    try:
        if not store.download(key, aside):
            return  # the caller says that it is missing
        if (found := sha256_of_file(aside)) != part.sha256:
            raise CorruptArtifact(
                f"{store.url}/{key} has sha256 {found}, {part.sha256} was committed; restore it from a copy (an earlier version "
                "of the object), or delete the manifest.json beside it and run again to rebuild the stage"
            )
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def pull(root: Path, lineage: str) -> None:
    """Make the manifests and small records of a lineage those of the object store, which is what counts.

    A folder whose manifest differs is dropped (its parts come again when they are read); what the store does not know is
    moved aside. Only under the lock of the working copy.
    """
    if (store := store_behind(root)) is None:
        return
    kept = {key: etag for key, etag in store.list(f"{lineage}/").items() if _KEPT.fullmatch(key)}
    base = root / lineage
    here = [*base.glob("*.json"), *base.glob("decisions/*.json"), *base.glob(f"iteration-*/**/{_MANIFEST}")]
    for path in here:
        key = path.relative_to(root).as_posix()
        if key in kept or not _KEPT.fullmatch(key) or any(name.startswith(".") for name in key.split("/")):
            continue
        if path.name != _MANIFEST:
            path.unlink()
        elif path.parent.exists():
            files.quarantine(path.parent)
    with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
        list(pool.map(lambda item: _refresh(store, root, *item), kept.items()))


def pull_all(root: Path, held: Iterable[str]) -> None:
    """``pull`` for every lineage of the object store but those that a process of this machine holds."""
    if (store := store_behind(root)) is not None:
        names = {key.partition("/")[0] for key in store.list("") if key.endswith("/lineage.json")}
        for name in sorted(names - set(held)):
            pull(root, name)


def _refresh(store: ObjectStore, root: Path, key: str, etag: str) -> None:
    path = _inside(root, key)
    old = path.read_bytes() if path.is_file() else None
    if old is not None and etag.strip('"') == hashlib.md5(old, usedforsecurity=False).hexdigest():
        return
    if (found := store.get(key)) is None or found.data == old:
        return
    if path.name == _MANIFEST and path.parent.exists() and old is not None:
        away = path.parent.with_name(f"{files.ASIDE}{path.parent.name}-{secrets.token_hex(4)}")
        path.parent.rename(away)
        shutil.rmtree(away)
    files.write_atomic(path, found.data)


def _inside(root: Path, key: str) -> Path:
    """The file of an object; StorageError for a name that could lead out of the working copy."""
    if not _SAFE.fullmatch(key) or ".." in key.split("/") or os.path.isabs(key):
        raise StorageError(f"the object {key!r} has no name of ours; remove it from the bucket")
    return root / key
