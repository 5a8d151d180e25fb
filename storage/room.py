"""A disk without room, or one that turned read-only, told in one line, whichever library met it."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.errors import DiskFull, ReadOnlyStore

FULL_NUMBERS = {errno.ENOSPC, errno.EDQUOT}
FULL_WORDS = ("no space left on device", "database or disk is full", "disk quota exceeded")
READ_ONLY_WORDS = ("read-only file system", "attempt to write a readonly database")
MIN_NEEDED_BYTES = 64 << 20
"""Asked for at least, whatever the lineage's iterations take: databases and logs grow too."""


@contextmanager
def missing_room_named(root: Path, lineage: str) -> Iterator[None]:
    """Whatever fails inside for want of room fails with one line that names the store, what is free and what is needed.

    Python names no path when a write fails, Arrow, safetensors and SQLite each say it in their own words, and none says
    how much would do.

    Raises:
        DiskFull: no room is left (or no quota). ReadOnlyStore: the file system takes no writes any more.
    """
    try:
        yield
    except Exception as error:
        said = [each for each in _causes(error) if _is_full(each) or _is_read_only(each)]
        if not said:
            raise
        first = " ".join(str(said[0]).split())[:200]
        if not _is_full(said[0]):
            raise ReadOnlyStore(
                f"the store {root} became read-only ({first}); mount it for writing, then the same command goes on"
            ) from error
        needed = max(MIN_NEEDED_BYTES, largest_iteration_bytes(root / lineage))
        raise DiskFull(
            f"a disk is full ({first}): the store {root} has {_megabytes(shutil.disk_usage(root).free)} free, the "
            f"temporary folder {tempfile.gettempdir()} {_megabytes(shutil.disk_usage(tempfile.gettempdir()).free)}; "
            f"free at least {_megabytes(needed)}, then the same command goes on from the last finished stage"
        ) from error


def largest_iteration_bytes(lineage_folder: Path) -> int:
    """Bytes of the largest iteration of a lineage as it stands; an iteration under way needs about as many."""
    folders = lineage_folder.glob("iteration-[0-9]*")
    return max((sum(map(_size, folder.rglob("*"))) for folder in folders), default=0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # an unfinished write that its owner just removed
        return 0


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, the first cause last seen."""
    seen: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and here not in seen:
        seen.append(here)
        yield here
        here = here.__cause__ or here.__context__


def _is_full(error: BaseException) -> bool:
    number = error.errno if isinstance(error, OSError) else None
    return number in FULL_NUMBERS or any(words in str(error).lower() for words in FULL_WORDS)


def _is_read_only(error: BaseException) -> bool:
    number = error.errno if isinstance(error, OSError) else None
    return number == errno.EROFS or any(words in str(error).lower() for words in READ_ONLY_WORDS)


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"
