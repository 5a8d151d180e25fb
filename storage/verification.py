"""Whether a store is whole: every manifest, every part's sha256, every ref of every record and decision."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage import decisions, iterations, lineages, working_copy
from storage.checkpoints import TRAINER_FOLDER
from storage.digests import sha256_of_file
from storage.errors import StorageError
from storage.iterations import RECORD
from storage.manifest import MANIFEST, Manifest, read_manifest
from storage.refs import DatasetRef, Frozen, ModelRef, iteration_name
from storage.schemas import SCHEMA_VERSION


class Found(Frozen):
    """What a look at a lineage found: counts, the bytes that were read, and a line for everything that is wrong."""

    num_manifests: int
    num_parts: int
    num_bytes: int
    num_pruned: int
    """Checkpoints whose weights were removed on purpose: no fault."""
    faults: tuple[str, ...]


def verify_lineage(root: Path, lineage: str) -> Found:
    """Read everything that a lineage committed. Nothing is changed; unfinished work of a run is not looked at."""
    faults: list[str] = []
    num_parts = num_bytes = num_pruned = 0
    folders = list(committed_folders(root / lineage))
    for folder in folders:
        try:
            manifest = read_manifest(folder)
        except StorageError as error:
            faults.append(str(error))
            continue
        assert manifest is not None, folder
        if manifest.pruned:
            num_pruned += 1
            continue
        faults += _wrong_parts(folder, manifest)
        num_parts += len(manifest.parts)
        num_bytes += sum(part.size for part in manifest.parts)
    faults += _wrong_refs(root, lineage)
    return Found(
        num_manifests=len(folders),
        num_parts=num_parts,
        num_bytes=num_bytes,
        num_pruned=num_pruned,
        faults=tuple(dict.fromkeys(faults)),
    )


def committed_folders(lineage_folder: Path) -> Iterator[Path]:
    """Every folder with a manifest below the lineage's iterations, in order; nothing set aside or unfinished."""
    for path in sorted(lineage_folder.glob(f"iteration-*/**/{MANIFEST}")):
        inner = path.relative_to(lineage_folder).parts
        if not any(part.startswith(".") for part in inner) and TRAINER_FOLDER not in inner:
            yield path.parent


def _wrong_parts(folder: Path, manifest: Manifest) -> list[str]:
    wrong = []
    try:
        working_copy.fetch_missing(folder, manifest.parts)
    except StorageError as error:
        wrong.append(str(error))
    for part in manifest.parts:
        path = folder / part.name
        if path.is_symlink() or folder.resolve() not in path.resolve().parents:
            wrong.append(f"{path} is a link or leads out of its folder")
        elif not path.is_file():
            wrong.append(f"{path} is missing")
        elif (found := sha256_of_file(path)) != part.sha256:
            wrong.append(f"{path} has sha256 {found}, {part.sha256} was committed")
    known = {MANIFEST, *(part.name for part in manifest.parts)}
    present = (path for path in sorted(folder.rglob("*")) if not path.is_dir())
    wrong += [f"{path} is not in the manifest" for path in present if path.relative_to(folder).as_posix() not in known]
    return wrong or _wrong_table(folder, manifest)


def _wrong_table(folder: Path, manifest: Manifest) -> list[str]:
    """What keeps a whole table from being read: a later schema, no Parquet, another number of rows."""
    if (version := manifest.schema_version) is None:
        return []
    if version > SCHEMA_VERSION:
        return [f"{folder} has the columns of schema {version}, this code reads 1 to {SCHEMA_VERSION}"]
    try:
        num_rows = sum(pq.read_metadata(folder / part.name).num_rows for part in manifest.parts)
    except (pa.ArrowException, OSError) as error:
        return [f"{folder} can not be read as Parquet: {error}"]
    return [] if num_rows == manifest.num_rows else [f"{folder} has {num_rows} rows, {manifest.num_rows} committed"]


def _wrong_refs(root: Path, lineage: str) -> list[str]:
    wrong: list[str] = []
    try:
        lineages.read_recipe(root, lineage)
    except StorageError as error:
        wrong.append(str(error))
    numbers = sorted(
        int(path.parents[1].name.partition("-")[2])
        for path in (root / lineage).glob(f"iteration-[0-9]*/{RECORD}/{MANIFEST}")
    )
    try:
        first = lineages.first_iteration(root, lineage)
    except StorageError as error:
        return [*wrong, str(error)]
    for missing in sorted(set(range(first, max(numbers, default=-1) + 1)) - set(numbers)):
        wrong.append(f"{root / lineage / iteration_name(missing)} has no record, later iterations have one")
    for number in numbers:
        folder = root / lineage / iteration_name(number) / RECORD
        try:
            record = iterations.read_record(folder, number)
        except StorageError as error:
            wrong.append(str(error))
            continue
        wrong += [f"{folder}: {each}" for ref in refs_of(record) if (each := _unresolved(ref))]
    try:
        taken = decisions.decisions(root, lineage)
    except StorageError as error:
        return [*wrong, str(error)]
    named = f"{root / lineage / decisions.FOLDER}"
    return wrong + [f"{named}: {each}" for one in taken for ref in refs_of(one) if (each := _unresolved(ref))]


def refs_of(value: Any) -> list[DatasetRef | ModelRef]:
    """Every ref in a record or decision, each folder once, in the order of its fields."""
    found: dict[str, DatasetRef | ModelRef] = {}
    fields = dict(value).values() if isinstance(value, Frozen) else value.values()
    for each in fields:
        if isinstance(each, (DatasetRef, ModelRef)):
            found.setdefault(each.uri, each)
        elif isinstance(each, dict):
            found |= {ref.uri: ref for ref in refs_of(each) if ref.uri not in found}
    return list(found.values())


def _unresolved(ref: DatasetRef | ModelRef) -> str:
    """Why a ref names nothing, "" when it does; what is wrong with the bytes is told where they stand."""
    try:
        manifest = read_manifest(Path(ref.uri))
    except StorageError as error:
        return str(error)
    if manifest is None:
        return f"the reference to {ref.uri} names nothing committed"
    return "" if manifest.digest == ref.digest else f"{ref.uri} has digest {manifest.digest}, {ref.digest} is named"
