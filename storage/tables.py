"""Tables: Parquet folders that are written once, found by provenance and read back with their digest checked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from storage import commits
from storage.columns import to_arrow
from storage.errors import CorruptArtifact, UnknownFormat
from storage.manifest import Manifest, Provenance, read_manifest
from storage.migrations import OLD_TABLES
from storage.refs import DatasetRef, Place, TableName
from storage.schemas import SCHEMA_VERSION, schema_of
from storage.table_migrations import forward
from storage.text import repair

ROWS_PER_PART = 50_000
REPAIRED_METRIC = "num_repaired_texts"

Row = Mapping[str, Any]


def find(place: Place, table: TableName, provenance: Provenance, *, name: str | None = None) -> DatasetRef | None:
    """The committed table at this place, None when it has to be made (see ``commits.find``)."""
    folder = place.folder(name or table)
    manifest = commits.find(place, folder, provenance)
    return None if manifest is None else _ref(folder, table, manifest)


def publish(
    place: Place,
    table: TableName,
    rows: Sequence[Row],
    provenance: Provenance,
    *,
    name: str | None = None,
    sources: tuple[str, ...] = (),
    metrics: Mapping[str, float] | None = None,
) -> DatasetRef:
    """Commit rows as Parquet parts of at most 50,000 rows under the table's schema.

    Text that is not valid UTF-8 is repaired (lone surrogates become U+FFFD); the repaired values are counted in the
    metric ``num_repaired_texts`` and their rows marked (``repaired_rows``).

    Raises:
        ValueError: a row has a missing or a surplus column, no key, or a value that is not of its column's type (1.5 is
            no integer, True no number); names it. Nothing is committed.
    """
    schema = schema_of(table, sources)
    clean, repaired = _storable(rows, schema, table)
    folder = place.folder(name or table)

    def write(aside: Path) -> None:
        for index in range(max(1, -(-len(clean) // ROWS_PER_PART))):
            first = index * ROWS_PER_PART
            chunk = to_arrow(clean[first : first + ROWS_PER_PART], schema, table, first)
            pq.write_table(chunk, aside / f"part-{index:05d}.parquet", compression="zstd")

    counted = {**(metrics or {}), **({REPAIRED_METRIC: float(len(repaired))} if repaired else {})}
    manifest = commits.publish(
        place,
        folder,
        write,
        provenance,
        num_rows=len(clean),
        schema_version=SCHEMA_VERSION,
        metrics=counted,
        repaired_rows=tuple(dict.fromkeys(repaired)),
    )
    return _ref(folder, table, manifest)


def read(ref: DatasetRef) -> list[dict[str, Any]]:
    """All rows in the order they were written, as dicts; lists are lists, null is None, NaN stays NaN.

    Raises:
        CorruptArtifact: the bytes differ from those committed, or the table is not the one the ref names.
        UnknownFormat: the table was written with other columns than this code knows.
    """
    return read_arrow(ref).to_pylist()  # type: ignore[no-any-return]


def read_arrow(ref: DatasetRef) -> pa.Table:
    """All rows as one Arrow table, digest checked."""
    folder = Path(ref.uri)
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorruptArtifact(f"{folder} holds no committed table; run the stage again")
    if manifest.digest != ref.digest:
        raise CorruptArtifact(f"{folder} holds digest {manifest.digest}, the reference names {ref.digest}")
    version = manifest.schema_version
    if version is None or not 1 <= version <= SCHEMA_VERSION:
        raise UnknownFormat(
            f"{folder} has the columns of schema {version}, this code reads 1 to {SCHEMA_VERSION}; "
            "use the version of iterative-grpo that wrote it, or a later one"
        )
    manifest.verify(folder)
    try:
        parts = [pq.read_table(folder / part.name) for part in manifest.parts]
    except (pa.ArrowException, OSError) as error:
        raise CorruptArtifact(f"{folder} can not be read as Parquet: {error}") from error
    return forward(pa.concat_tables(parts), ref.table, version, folder)


def ref_at(folder: Path) -> DatasetRef:
    """The ref of a committed table folder, whatever its provenance (for reading by people and reports)."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorruptArtifact(f"{folder} holds no committed table (no manifest.json)")
    stage = OLD_TABLES.get(manifest.provenance.stage, manifest.provenance.stage)
    if stage not in get_args(TableName):
        raise CorruptArtifact(f"{folder} holds a {stage}, not a table")
    return _ref(folder, stage, manifest)  # type: ignore[arg-type]


def metrics_of(ref: DatasetRef) -> dict[str, float]:
    """The counts and means that were committed with the table."""
    manifest = read_manifest(Path(ref.uri))
    if manifest is None:
        raise CorruptArtifact(f"{ref.uri} holds no committed table")
    return manifest.metrics


def repaired_rows(ref: DatasetRef) -> tuple[int, ...]:
    """Positions of the rows whose text had to be repaired to be stored."""
    manifest = read_manifest(Path(ref.uri))
    if manifest is None:
        raise CorruptArtifact(f"{ref.uri} holds no committed table")
    return manifest.repaired_rows


def _ref(folder: Path, table: TableName, manifest: Manifest) -> DatasetRef:
    return DatasetRef(uri=str(folder), digest=manifest.digest, table=table, num_rows=manifest.num_rows or 0)


def _storable(rows: Sequence[Row], schema: pa.Schema, table: str) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows with valid text, and the row number of every text that was repaired."""
    names = set(schema.names)
    texts = [field.name for field in schema if pa.types.is_large_string(field.type) or pa.types.is_string(field.type)]
    clean: list[dict[str, Any]] = []
    repaired: list[int] = []
    for number, row in enumerate(rows):
        if row.keys() != names:
            missing, surplus = sorted(names - row.keys()), sorted(row.keys() - names)
            raise ValueError(f"row {number} of {table}: missing columns {missing}, surplus columns {surplus}")
        copy = dict(row)
        for name in texts:
            if isinstance(copy[name], str):
                copy[name], changed = repair(copy[name])
                repaired += [number] * changed
        clean.append(copy)
    return clean, repaired
