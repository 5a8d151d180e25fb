"""Find and publish committed folders: the protocol that tables and checkpoints share."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from storage import files, working_copy
from storage.errors import CorruptArtifact
from storage.lock import require_token
from storage.manifest import (
    Manifest,
    Provenance,
    code,
    describe_parts,
    digest_of,
    read_manifest,
    utc_now,
    write_manifest,
)
from storage.refs import Place

log = logging.getLogger(__name__)


def find(place: Place, folder: Path, provenance: Provenance) -> Manifest | None:
    """The manifest of a finished stage, None when the stage has to run.

    A folder without a manifest never happened. One whose parts are missing or have another size is moved aside
    (``.corrupt-...``), said so, and counts as not done, so that it is rebuilt from its inputs. Other inputs or settings
    than asked for raise ProvenanceMismatch: never a silent reuse, never a silent recompute.

    Raises:
        ProvenanceMismatch: see above. LostLock: something is broken, but another run took the lineage.
    """
    try:
        manifest = read_manifest(folder)
        damage = "it has no manifest" if manifest is None and folder.exists() else ""
    except CorruptArtifact as error:
        manifest, damage = None, str(error)
    if manifest is not None:
        manifest.require(provenance, folder)
        damage = "" if manifest.pruned else "; ".join(manifest.broken_parts(folder))
    if not damage:
        return manifest
    set_aside(place, folder, damage)
    return None


def set_aside(place: Place, folder: Path, reason: str) -> None:
    """Move a damaged folder out of the way and say so, if this run still holds the lineage."""
    require_token(place)
    working_copy.forget(folder)
    log.warning("%s is damaged (%s); moved to %s, the stage runs again", folder, reason, files.quarantine(folder))


def publish(
    place: Place,
    folder: Path,
    write: Callable[[Path], None],
    provenance: Provenance,
    *,
    num_rows: int | None = None,
    schema_version: int | None = None,
    metrics: Mapping[str, float] | None = None,
    repaired_rows: tuple[int, ...] = (),
) -> Manifest:
    """Let ``write`` fill a folder aside, then make it ``folder`` in one rename, if this run still holds the lineage.

    ``metrics`` is read after ``write`` has returned, so that ``write`` may fill it.

    Raises:
        LostLock: another run took the lineage; nothing was committed.
        FileExistsError: the stage is already committed (call ``find`` first).
    """
    require_token(place)  # before anything is written or computed in vain
    if folder.exists():
        raise FileExistsError(f"{folder} is already committed")
    with files.folder_aside(folder) as aside:
        write(aside)
        with ThreadPoolExecutor(1) as beside:  # the disk takes the bytes while they are read for their digests
            flushed = beside.submit(files.fsync_tree, aside)
            parts = describe_parts(aside)
            flushed.result()
        manifest = Manifest(
            provenance=provenance,
            code=code(),
            created_at=utc_now(),
            digest=digest_of(parts),
            parts=parts,
            num_rows=num_rows,
            schema_version=schema_version,
            metrics=dict(metrics or {}),
            repaired_rows=repaired_rows,
        )
        write_manifest(aside, manifest)
        files.fsync_tree(aside)
        working_copy.send_parts(folder, aside, parts)
        require_token(place)  # after the flush, which may take minutes: nothing slow stands before the rename
        working_copy.send_manifest(folder, aside)
        files.commit_folder(aside, folder)
    return manifest
