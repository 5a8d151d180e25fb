"""A full disk and a read-only one, in the words of each library."""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import DiskFull, ReadOnlyStore, StorageError
from storage.room import MIN_NEEDED_BYTES, largest_iteration_bytes, missing_room_named

FULL = Path("/dev/full")  # every write to it fails with ENOSPC


def fail(root, error):
    with missing_room_named(root, "small"):
        raise error


def test_the_line_names_the_store_what_is_free_and_what_is_needed(tmp_path, monkeypatch):
    usage = {tmp_path: (0, 0, 1_500_000), tempfile.gettempdir(): (0, 0, 7_000_000_000)}
    monkeypatch.setattr("shutil.disk_usage", lambda path: os_usage(usage[path]))
    with pytest.raises(DiskFull) as told:
        fail(tmp_path, OSError(errno.ENOSPC, "No space left on device"))
    assert str(told.value) == (
        f"a disk is full ([Errno 28] No space left on device): the store {tmp_path} has 1.5 MB free, the temporary folder "
        f"{tempfile.gettempdir()} 7,000.0 MB; free at least 67.1 MB, then the same command goes on from the last finished stage"
    )


def os_usage(numbers):
    return type("Usage", (), dict(zip(("total", "used", "free"), numbers, strict=True)))()


def by_python():
    with FULL.open("wb", buffering=0) as file:
        file.write(b"x")


def by_arrow():
    with pa.OSFile(str(FULL), "wb") as file:
        pq.write_table(pa.table({"a": [1]}), file)


def by_sqlite():
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 1")
    connection.execute("CREATE TABLE a (b)")


@pytest.mark.parametrize("write", [by_python, by_arrow, by_sqlite], ids=lambda write: write.__name__)
def test_each_library_says_it_in_its_own_words_and_all_are_understood(write, tmp_path):
    with pytest.raises(DiskFull, match="free at least"), missing_room_named(tmp_path, "small"):
        write()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_cause_may_stand_behind_another_error(number, tmp_path):
    outer = RuntimeError("a checkpoint could not be saved")
    outer.__cause__ = OSError(number, os.strerror(number))
    with pytest.raises(DiskFull) as told:
        fail(tmp_path, outer)
    assert os.strerror(number) in str(told.value)
    assert told.value.__cause__ is outer


def test_a_read_only_store_is_told_apart(tmp_path):
    with pytest.raises(ReadOnlyStore, match=f"the store {tmp_path} became read-only .*same command goes on"):
        fail(tmp_path, OSError(errno.EROFS, "Read-only file system", "a/b"))


@pytest.mark.parametrize("error", [ValueError("no"), OSError(errno.EACCES, "Permission denied"), StorageError("x")])
def test_every_other_error_passes_as_it_is(error, tmp_path):
    with pytest.raises(type(error)) as told:
        fail(tmp_path, error)
    assert told.value is error


def test_what_is_needed_is_what_the_largest_iteration_took(tmp_path):
    for number, size in ((0, 5), (1, 40), (2, 30)):
        folder = tmp_path / "small" / f"iteration-{number:04d}" / "policy"
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"x" * size)
    assert largest_iteration_bytes(tmp_path / "small") == 40
    assert largest_iteration_bytes(tmp_path / "none") == 0
    with (tmp_path / "small" / "iteration-0002" / "big").open("wb") as file:
        file.truncate(MIN_NEEDED_BYTES * 2)
    with pytest.raises(DiskFull, match=r"free at least 134\.2 MB"):
        fail(tmp_path, OSError(errno.ENOSPC, "full"))
