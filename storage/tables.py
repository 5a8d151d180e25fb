"""Tables: Parquet folders that are written once, found by provenance and read back with their digest checked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from storage import commits
from storage.errors import CorruptArtifact
from storage.manifest import Manifest, Provenance, read_manifest
from storage.refs import DatasetRef, Place, TableName
from storage.schemas import SCHEMA_VERSION, schema_of
from storage.text import repair

ROWS_PER_PART = 50_000
REPAIRED_METRIC = "num_repaired_rows"

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

    Text that is not valid UTF-8 is repaired (lone surrogates become U+FFFD); the manifest names the repaired rows and the
    metric ``num_repaired_rows`` counts them. A row with a missing or a surplus column, or a value that does not fit its type, is
    an error that names it: nothing is committed.
    """
    schema = schema_of(table, sources)
    clean, repaired = _storable(rows, schema, table)
    folder = place.folder(name or table)

    def write(aside: Path) -> None:
        for index in range(max(1, -(-len(clean) // ROWS_PER_PART))):
            chunk = clean[index * ROWS_PER_PART : (index + 1) * ROWS_PER_PART]
            pq.write_table(_to_arrow(chunk, schema, table), aside / f"part-{index:05d}.parquet", compression="zstd")

    manifest = commits.publish(
        place,
        folder,
        write,
        provenance,
        num_rows=len(clean),
        schema_version=SCHEMA_VERSION,
        metrics={**(metrics or {}), **({REPAIRED_METRIC: float(len(repaired))} if repaired else {})},
        repaired_rows=repaired,
    )
    return _ref(folder, table, manifest)


def read(ref: DatasetRef) -> list[dict[str, Any]]:
    """All rows in the order they were written, as dicts; lists are lists, null is None, NaN stays NaN.

    Raises:
        CorruptArtifact: the bytes differ from those committed, or the table is not the one the ref names.
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
    manifest.verify(folder)
    try:
        parts = [pq.read_table(folder / part.name) for part in manifest.parts]
    except pa.ArrowInvalid as error:
        raise CorruptArtifact(f"{folder} can not be read as Parquet: {error}") from error
    return pa.concat_tables(parts)


def ref_at(folder: Path) -> DatasetRef:
    """The ref of a committed table folder, whatever its provenance (for reading by people and reports)."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorruptArtifact(f"{folder} holds no committed table (no manifest.json)")
    stage = manifest.provenance.stage
    if stage not in get_args(TableName):
        raise CorruptArtifact(f"{folder} holds a {stage}, not a table")
    return _ref(folder, stage, manifest)  # type: ignore[arg-type]


def metrics_of(ref: DatasetRef) -> dict[str, float]:
    """The counts and means that were committed with the table."""
    manifest = read_manifest(Path(ref.uri))
    if manifest is None:
        raise CorruptArtifact(f"{ref.uri} holds no committed table")
    return manifest.metrics


def _ref(folder: Path, table: TableName, manifest: Manifest) -> DatasetRef:
    return DatasetRef(uri=str(folder), digest=manifest.digest, table=table, num_rows=manifest.num_rows or 0)


def _storable(rows: Sequence[Row], schema: pa.Schema, table: str) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    names = set(schema.names)
    texts = [field.name for field in schema if pa.types.is_large_string(field.type) or pa.types.is_string(field.type)]
    clean, repaired = [], []
    for number, row in enumerate(rows):
        if row.keys() != names:
            missing, surplus = sorted(names - row.keys()), sorted(row.keys() - names)
            raise ValueError(f"row {number} of {table}: missing columns {missing}, surplus columns {surplus}")
        copy = dict(row)
        found = {name: repair(copy[name]) for name in texts if isinstance(copy[name], str)}
        clean.append({**copy, **{name: text for name, (text, _) in found.items()}})
        if any(changed for _, changed in found.values()):
            repaired.append(number)
    return clean, tuple(repaired)


def _to_arrow(rows: list[dict[str, Any]], schema: pa.Schema, table: str) -> pa.Table:
    columns = []
    for field in schema:
        try:
            columns.append(pa.array([row[field.name] for row in rows], type=field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ValueError(f"column {field.name} of {table} does not hold {field.type}: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)
