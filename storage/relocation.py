"""MLflow's own database after the store was moved: it names folders by absolute path, which are corrected once."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlparse

log = logging.getLogger(__name__)

COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("datasets", "dataset_source"),
)
"""Where MLflow 3.17 keeps the address of a folder."""
ARTIFACTS = "mlflow"


def relocate(database: Path) -> int:
    """Let the database in a store's root name that root; gives how many values were changed (0 when it was not moved).

    A root counts as moved away when its folder is gone, or when it has a database of its own (the store was copied). What
    belongs to another store that still stands is left alone, and is refused where it is used.
    """
    root = database.resolve().parent
    changed = 0
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        for old in _former_roots(connection, root, database.name):
            for table, column in COLUMNS:
                for before, after in ((old.as_uri(), root.as_uri()), (str(old), str(root))):
                    changed += _replace(connection, table, column, before, after)
            log.warning("the store was moved from %s to %s; MLflow's folders are named anew", old, root)
    return changed


def _former_roots(connection: sqlite3.Connection, root: Path, database: str) -> list[Path]:
    """Roots in which the experiments of this store's lineages had their folders, this one left out."""
    found = set()
    for name, location in connection.execute("SELECT name, artifact_location FROM experiments"):
        folder = Path(unquote(urlparse(location or "").path))
        old = folder.parent.parent
        is_ours = (folder.parent.name, folder.name) == (name, ARTIFACTS) and (root / name / "lineage.json").is_file()
        if is_ours and old != root and (not old.exists() or (old / database).is_file()):
            found.add(old)
    return sorted(found)


def _replace(connection: sqlite3.Connection, table: str, column: str, before: str, after: str) -> int:
    """Change the values that are, or hold in quotes (JSON), a path below ``before``."""
    known = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    if column not in known:
        return 0
    changed = 0
    for mark in ("", '"'):
        sets = f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE "  # noqa: S608 - names of COLUMNS
        where = f"instr({column}, ?) > 0" if mark else f"substr({column}, 1, length(?)) = ?"
        old, new = f"{mark}{before}/", f"{mark}{after}/"
        changed += connection.execute(sets + where, (old, new, old) if mark else (old, new, old, old)).rowcount
    return changed
