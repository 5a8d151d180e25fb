"""What MLflow has yet to be told: one file per thing, written before it is sent, deleted once it was taken."""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from storage import files
from storage.errors import CorruptArtifact
from storage.iterations import IterationRecord
from storage.lock import require_token
from storage.refs import Frozen, Place, mistakes

FOLDER = "journal"
REFUSED = "refused"
RECORDED_FILE = "recorded.json"
DIGEST_CHARACTERS = 16

Kind = Literal[
    "run",
    "metrics",
    "tags",
    "dataset",
    "version",
    "consumed",
    "alias",
    "version_tags",
    "page",
    "drawing",
    "finish",
    "close",
    "retire",
]
BARRIERS = ("close", "retire")
"""Kinds that undo what was told before them."""


class Entry(Frozen):
    """One thing to record: what it is, of which iteration, and its content (JSON)."""

    kind: Kind
    iteration: int
    content: dict[str, Any]


class Pending(NamedTuple):
    """An entry that was not delivered yet, and its file."""

    path: Path
    entry: Entry


def folder_of(root: Path, lineage: str) -> Path:
    return root / lineage / FOLDER


def append(place: Place, kind: Kind, content: dict[str, Any]) -> Path:
    """Write down that MLflow has to be told this, after everything that is pending; gives the entry's file.

    An entry that is pending with the same content keeps its place: a stage that is repeated adds nothing. What stands
    before an entry of ``BARRIERS`` is not the same: a run that was closed or retired has to be told anew.

    Raises:
        LostLock: another run took the lineage.
    """
    require_token(place)
    entry = Entry(kind=kind, iteration=place.iteration, content=content)
    data = json.dumps(entry.model_dump(), sort_keys=True, ensure_ascii=False).encode("utf-8", "replace")
    digest = hashlib.sha256(data).hexdigest()[:DIGEST_CHARACTERS]
    folder = folder_of(Path(place.root), place.lineage)
    paths = _paths(folder)
    for path in reversed(paths):
        _, told, its_digest = path.stem.split("-")
        if its_digest == digest:
            return path
        if told in BARRIERS:
            break
    number = int(paths[-1].name.partition("-")[0]) + 1 if paths else 1
    path = folder / f"{number:08d}-{kind}-{digest}.json"
    files.write_atomic(path, data + b"\n")
    return path


def pending(root: Path, lineage: str) -> list[Pending]:
    """The entries that were not delivered yet, in the order in which they were appended.

    Raises:
        CorruptArtifact: a file is not an entry; names it and the cure.
    """
    cure = "delete it, then `igrpo repair-lineage` records the lineage anew"
    found = []
    for path in _paths(folder_of(root, lineage)):
        fields = files.read_json(path, cure=cure)
        try:
            found.append(Pending(path, Entry.model_validate(fields)))
        except ValidationError as error:
            raise CorruptArtifact(f"{path} is not a journal's entry: {mistakes(error)}; {cure}") from error
    return found


def delivered(path: Path) -> None:
    """MLflow took the entry: its file goes."""
    path.unlink(missing_ok=True)
    files.fsync_folder(path.parent)


def refuse(path: Path, why: str) -> Path:
    """Move an entry that can never be delivered out of the way, ``why`` beside it; gives its new place."""
    folder = path.parent / REFUSED
    files.write_atomic(folder / f"{path.stem}.txt", f"{why}\n".encode())
    target = folder / path.name
    path.rename(target)
    files.fsync_folder(path.parent)
    return target


def forget_refused(place: Place) -> int:
    """Delete what was set aside, once the lineage was recorded anew; gives how many entries that were.

    Raises:
        LostLock: another run took the lineage.
    """
    require_token(place)
    aside = folder_of(Path(place.root), place.lineage) / REFUSED
    entries = list(aside.glob("*.json"))
    for path in [*entries, *aside.glob("*.txt")]:
        path.unlink()
    return len(entries)


def num_pending(root: Path, lineage: str) -> int:
    """How many entries were not delivered yet, without reading them."""
    return len(_paths(folder_of(root, lineage)))


def is_recorded(root: Path, lineage: str, record: IterationRecord) -> bool:
    """Whether the newest record that was written into the journal whole is this one."""
    path = folder_of(root, lineage) / RECORDED_FILE
    cure = "delete it, the next run writes it anew"
    return path.is_file() and files.read_json(path, cure=cure).get("record") == _mark(record)


def mark_recorded(place: Place, record: IterationRecord) -> None:
    """Everything that the record says stands in the journal."""
    require_token(place)
    path = folder_of(Path(place.root), place.lineage) / RECORDED_FILE
    files.write_atomic(path, (json.dumps({"record": _mark(record)}) + "\n").encode())


def _mark(record: IterationRecord) -> str:
    return f"iteration {record.iteration}, policy v{record.policy.version} {record.policy.digest}"


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*-*-*.json"))
