"""Bytes on a local disk that survive a crash: write aside, flush to the disk, rename."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage.errors import CorruptArtifact

ASIDE = ".tmp-"  # every unfinished write begins with this; nothing that begins so ever counts
QUARANTINE = ".corrupt-"


def fsync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, each flushed: a commit is no safer than the path that leads to it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        fsync_folder(folder.parent)


def fsync_tree(folder: Path) -> None:
    """Flush every file and folder below (and including) ``folder``."""
    for here, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(Path(here) / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        fsync_folder(Path(here))


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file's content as one step: readers see the old bytes or the new, never a part."""
    make_folder(path.parent)
    aside = path.with_name(f"{ASIDE}{path.name}-{secrets.token_hex(4)}")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)  # a full disk is not helped by what did not fit on it
        raise
    fsync_folder(path.parent)


def read_json(path: Path, *, cure: str) -> dict[str, Any]:
    """The JSON object in a file; CorruptArtifact, ending in ``cure``, when the bytes are something else."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptArtifact(f"{path} is not JSON: {error}; {cure}") from error
    if not isinstance(value, dict):
        raise CorruptArtifact(f"{path} holds a {type(value).__name__}, not a JSON object; {cure}")
    return value


@contextmanager
def folder_aside(final: Path) -> Iterator[Path]:
    """A fresh folder beside ``final`` to write into; removed again unless it was renamed away."""
    make_folder(final.parent)
    aside = final.parent / f"{ASIDE}{final.name}-{secrets.token_hex(4)}"
    aside.mkdir()
    try:
        yield aside
    finally:
        if aside.exists():
            shutil.rmtree(aside)


def commit_folder(aside: Path, final: Path) -> None:
    """Make ``aside``, already flushed, ``final`` by one rename. ``final`` must not exist."""
    aside.rename(final)
    fsync_folder(final.parent)


def quarantine(folder: Path) -> Path:
    """Move a broken folder out of the way, keeping its bytes for a look; gives the new place."""
    away = folder.with_name(f"{QUARANTINE}{folder.name}-{secrets.token_hex(4)}")
    folder.rename(away)
    fsync_folder(folder.parent)
    return away


def sweep_unfinished(folder: Path) -> int:
    """Delete every write below ``folder`` that never finished; gives how many. Only under the lineage lock."""
    swept = 0
    for here, folders, files in os.walk(folder):
        for name in [name for name in folders if name.startswith(ASIDE)]:
            shutil.rmtree(Path(here) / name)
            folders.remove(name)
            swept += 1
        for name in files:
            if name.startswith(ASIDE):
                (Path(here) / name).unlink()
                swept += 1
    return swept
