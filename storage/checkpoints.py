"""Checkpoints: model folders (safetensors, JSON, tokenizer files) that are written once and opened with their digest checked."""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from storage import commits, working_copy
from storage.errors import CorruptArtifact, PrunedCheckpoint
from storage.lock import require_token
from storage.manifest import MANIFEST, Manifest, Provenance, read_manifest, write_manifest
from storage.refs import ModelRef, Place, Role

TRAINER_FOLDER = "trainer"  # optimiser and counters, inside the checkpoint: weights and trainer commit as one
ADAPTER_FOLDER = "adapter"  # a LoRA adapter beside the weights that it is part of
FORBIDDEN_SUFFIXES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".py"}
ZIP_MAGIC = b"PK\x03\x04"  # torch.save writes a zip with a pickle in it
PICKLE_MAGIC = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # PROTO and its number

_verified: set[tuple[str, str]] = set()


def find(place: Place, role: Role, provenance: Provenance) -> ModelRef | None:
    """The committed checkpoint at this place, None when it has to be made."""
    folder = place.folder(role)
    manifest = commits.find(place, folder, provenance)
    return None if manifest is None else ModelRef(uri=str(folder), digest=manifest.digest, role=role)


def publish(
    place: Place,
    role: Role,
    write: Callable[[Path], None],
    provenance: Provenance,
    *,
    metrics: Mapping[str, float] | None = None,
) -> ModelRef:
    """Commit the folder that ``write`` fills.

    Raises:
        ValueError: a file is a pickle or a program, by its name or its first bytes: only data that can not run code is kept.
    """
    folder = place.folder(role)

    def write_checked(aside: Path) -> None:
        write(aside)
        for path in aside.rglob("*"):
            if path.is_file():
                _refuse_code(path)
                # save_pretrained writes 0600, which a server under another user can not read
                path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)

    manifest = commits.publish(place, folder, write_checked, provenance, metrics=metrics)
    _verified.add((str(folder), manifest.digest))
    return ModelRef(uri=str(folder), digest=manifest.digest, role=role)


def open_folder(ref: ModelRef) -> Path:
    """The local folder of a checkpoint, every file's sha256 checked once per process.

    Raises:
        CorruptArtifact: bytes differ from those committed. PrunedCheckpoint: the weights were removed.
    """
    folder = Path(ref.uri)
    manifest = _manifest_of(ref)
    if manifest.pruned:
        raise PrunedCheckpoint(
            f"the weights of {folder} were removed to save space; delete the folder and run again to rebuild them"
        )
    if (str(folder), ref.digest) not in _verified:
        manifest.verify(folder)
        _verified.add((str(folder), ref.digest))
    return folder


def ref_at(folder: Path, role: Role) -> ModelRef:
    """The ref of a committed checkpoint's folder, also of one whose weights were removed.

    Raises:
        CorruptArtifact: nothing was committed there.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorruptArtifact(f"{folder} holds no committed checkpoint (no manifest.json)")
    return ModelRef(uri=str(folder), digest=manifest.digest, role=role)


def metrics_of(ref: ModelRef) -> dict[str, float]:
    """What was measured while the checkpoint was made."""
    return _manifest_of(ref).metrics


def prune(place: Place, ref: ModelRef) -> int:
    """Remove a checkpoint's files but keep its manifest, marked pruned; gives the bytes freed.

    The manifest is marked first: a crash in between leaves files that nothing reads, never a manifest that promises
    files that are gone.

    Raises:
        ValueError: the checkpoint is not of this lineage, so that holding this one says nothing about it.
        LostLock: another run took the lineage; nothing was removed.
    """
    folder = Path(ref.uri)
    if place.lineage_folder not in folder.parents:
        raise ValueError(
            f"{folder} is not of lineage {place.lineage!r}; only a lineage's own checkpoints can be pruned"
        )
    manifest = _manifest_of(ref)
    require_token(place)
    marked = manifest.model_copy(update={"pruned": True})
    write_manifest(folder, marked)
    working_copy.send_file(folder / MANIFEST)
    freed = 0
    for part in manifest.parts:
        path = folder / part.name
        if path.is_file():
            freed += path.stat().st_size
            path.unlink()
        working_copy.remove(path)
    for here, _, _ in os.walk(folder, topdown=False):
        if Path(here) != folder and not any(Path(here).iterdir()):
            Path(here).rmdir()
    return freed


def prune_steps(place: Place, keep: Sequence[ModelRef]) -> int:
    """Prune the policies and critics of this iteration's steps but ``keep``; gives the bytes freed. May be repeated."""
    freed = 0
    kept = {Path(ref.uri) for ref in keep}
    roles: tuple[Role, ...] = ("policy", "critic")
    for role in roles:
        for path in sorted(place.folder("").glob(f"step-*/{role}/{MANIFEST}")):
            manifest = read_manifest(path.parent)
            if manifest is not None and not manifest.pruned and path.parent not in kept:
                freed += prune(place, ModelRef(uri=str(path.parent), digest=manifest.digest, role=role))
    return freed


def _refuse_code(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(len(ZIP_MAGIC))
    # The first bytes of safetensors are the length of its header: any number, the pickle's mark too.
    is_pickle = head.startswith(PICKLE_MAGIC) and path.suffix != ".safetensors"
    if path.suffix.lower() in FORBIDDEN_SUFFIXES or head == ZIP_MAGIC or is_pickle:
        raise ValueError(f"{path.name} is a pickle or a program; save safetensors and JSON")


def _manifest_of(ref: ModelRef) -> Manifest:
    manifest = read_manifest(Path(ref.uri))
    if manifest is None:
        raise CorruptArtifact(f"{ref.uri} holds no committed checkpoint (no manifest.json)")
    if manifest.digest != ref.digest:
        raise CorruptArtifact(f"{ref.uri} holds digest {manifest.digest}, the reference names {ref.digest}")
    return manifest
