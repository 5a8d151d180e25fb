"""Find and publish committed folders: the protocol that tables and checkpoints share."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from storage import files
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


def find(folder: Path, provenance: Provenance) -> Manifest | None:
    """The manifest of a finished stage, None when the stage has to run.

    A folder without a manifest never happened. One whose parts are missing or have another size is moved aside
    (``.corrupt-...``), said so, and counts as not done, so that it is rebuilt from its inputs. Other inputs or settings
    than asked for raise ProvenanceMismatch: never a silent reuse, never a silent recompute.
    """
    try:
        manifest = read_manifest(folder)
    except CorruptArtifact as error:
        log.warning("%s; moved to %s, the stage runs again", error, files.quarantine(folder))
        return None
    if manifest is None:
        if folder.exists():
            log.warning("%s has no manifest; moved to %s, the stage runs again", folder, files.quarantine(folder))
        return None
    manifest.require(provenance, folder)
    if not manifest.pruned and (broken := manifest.broken_parts(folder)):
        log.warning(
            "%s is damaged (%s); moved to %s, the stage runs again",
            folder,
            "; ".join(broken),
            files.quarantine(folder),
        )
        return None
    return manifest


def publish(
    place: Place,
    folder: Path,
    write: Callable[[Path], None],
    provenance: Provenance,
    *,
    num_rows: int | None = None,
    schema_version: int | None = None,
    metrics: Mapping[str, float] | None = None,
) -> Manifest:
    """Let ``write`` fill a folder aside, then make it ``folder`` in one rename, if this run still holds the lineage.

    Raises:
        LostLock: another run took the lineage; nothing was committed.
        FileExistsError: the stage is already committed (call ``find`` first).
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is already committed")
    with files.folder_aside(folder) as aside:
        write(aside)
        parts = describe_parts(aside)
        manifest = Manifest(
            provenance=provenance,
            code=code(),
            created_at=utc_now(),
            digest=digest_of(parts),
            parts=parts,
            num_rows=num_rows,
            schema_version=schema_version,
            metrics=dict(metrics or {}),
        )
        write_manifest(aside, manifest)
        require_token(place)
        files.commit_folder(aside, folder)
    return manifest
