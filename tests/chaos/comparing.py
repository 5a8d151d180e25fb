"""What a store holds, in a form that two stores can be compared by; and what no store may ever hold."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from storage.errors import StorageError
from storage.manifest import MANIFEST, differences, read_manifest

MLFLOW_TABLES = (
    "metrics", "params", "datasets", "inputs", "logged_models", "registered_models", "model_versions",
    "registered_model_aliases",
)  # fmt: skip
SAMPLED = {"completions", "rewards", "samples"}


def snapshot(store: Path, lineage: str) -> dict[str, Any]:
    """Digest and rows of every committed table and checkpoint, the summary without times, and what MLflow counts.

    Records hold wall times: only that they are there is compared.
    """
    folder = store / lineage
    committed: dict[str, Any] = {}
    for path in sorted(folder.glob(f"iteration-[0-9]*/**/{MANIFEST}")):
        manifest = json.loads(path.read_text())
        is_record = manifest["provenance"]["stage"] == "record"
        said = "record" if is_record else f"{manifest['digest']} with {manifest['num_rows']} rows"
        committed[str(path.parent.relative_to(folder))] = said
    rows = json.loads((folder / "summary.json").read_text())["iterations"]
    for row in rows:
        del row["seconds"]
    return {"committed": committed, "summary": rows, "mlflow": counted(store / "mlflow.db")}


def counted(database: Path) -> dict[str, int]:
    """How many rows the tables of MLflow's database have, and its runs by status."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in MLFLOW_TABLES}
        statuses = connection.execute(
            "SELECT status, count(*) FROM runs WHERE lifecycle_stage = 'active' GROUP BY status"
        )
        return counts | {f"runs {status}": number for status, number in statuses}


def differing(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """A line for everything that differs between two snapshots."""
    return differences(expected, found)


def broken(store: Path, lineage: str, *, allow_set_aside: int = 0) -> list[str]:
    """Everything in a lineage that must not be there once a run has ended well.

    Bytes that are not those committed, rows that the footers do not count, a completion that stands twice, unfinished
    writes, and folders moved aside as damaged, of which ``allow_set_aside`` are expected.
    """
    folder, found = store / lineage, []
    for path in sorted(folder.glob(f"iteration-[0-9]*/**/{MANIFEST}")):
        try:
            manifest = read_manifest(path.parent)
            assert manifest is not None
            if not manifest.pruned:
                manifest.verify(path.parent)
        except StorageError as error:
            found.append(str(error))
            continue
        found += _wrong_rows(path.parent, manifest.num_rows)
    found += [f"unfinished write {path}" for path in sorted(folder.rglob(".tmp-*"))]
    set_aside = sorted(folder.rglob(".corrupt-*"))
    if len(set_aside) != allow_set_aside:
        found.append(f"{len(set_aside)} folders moved aside, {allow_set_aside} expected: {set_aside}")
    return found


def _wrong_rows(folder: Path, num_rows: int | None) -> list[str]:
    parts = sorted(folder.glob("*.parquet"))
    if not parts:
        return []
    found = []
    if (in_footers := sum(pq.read_metadata(part).num_rows for part in parts)) != num_rows:
        found.append(f"{folder} has {in_footers} rows, {num_rows} committed")
    if folder.name in SAMPLED:
        keys = [
            (row["group_id"], row["sample_index"])
            for part in parts
            for row in pq.read_table(part, columns=["group_id", "sample_index"]).to_pylist()
        ]
        found += [f"{folder}: {key} stands {times} times" for key, times in Counter(keys).items() if times > 1]
    return found
