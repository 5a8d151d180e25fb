"""Carry out a plan of `igrpo gc`: weights go, their manifests stay as tombstones, and MLflow's versions say so."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from storage import checkpoints, delivery, iterations, journal
from storage.files import fsync_folder
from storage.lock import require_token
from storage.manifest import MANIFEST, read_manifest, utc_now
from storage.mlflow_client import is_untouched
from storage.refs import ModelRef, Place, Role
from storage.registry import WEIGHTS_TAG
from storage.retention import Plan
from storage.verification import refs_of


def collect(place: Place, plan: Plan) -> int:
    """Remove what the plan names; gives the bytes that the disk got back. May be repeated after an interruption.

    A file of a checkpoint is also a hard link in MLflow's folder of the logged model; both go, else nothing is freed.
    The manifest is marked first: it stays with the names, sizes and digests of what was there.

    Raises:
        ValueError: the plan is of another lineage. LostLock: another run took the lineage; the rest stays.
    """
    if plan.lineage != place.lineage:
        raise ValueError(f"the plan is of lineage {plan.lineage!r}, the lock of {place.lineage!r}")
    root = Path(place.root)
    freed = 0
    links = _links(root)
    versions = {ref.uri: ref for record in iterations.records(root, place.lineage) for ref in refs_of(record)}
    for each in plan.removed:
        require_token(place)
        folder = root / each.name
        if (manifest := read_manifest(folder)) is None or folder.name.startswith("."):
            freed += _remove_leftover(folder)
            continue
        ref = versions.get(str(folder))
        role: Role = folder.name  # type: ignore[assignment]
        if isinstance(ref, ModelRef) and ref.version and not is_untouched(root):
            tags = {WEIGHTS_TAG: f"removed by igrpo gc at {utc_now()}: {each.reason}"}
            journal.append(place, "version_tags", {"ref": ref.model_dump(), "tags": tags})
        freed += _unlink(folder, links)
        freed += checkpoints.prune(place, ModelRef(uri=str(folder), digest=manifest.digest, role=role))
    delivery.deliver(place)
    return freed


def _links(root: Path) -> dict[tuple[int, int], list[Path]]:
    """(device, inode) -> the names that MLflow's folders have for it; only of files that have another name."""
    found: dict[tuple[int, int], list[Path]] = {}
    for path in _files(root.glob("*/mlflow")):
        if (status := path.stat()).st_nlink > 1:
            found.setdefault((status.st_dev, status.st_ino), []).append(path)
    return found


def _files(folders: Iterator[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _unlink(folder: Path, links: dict[tuple[int, int], list[Path]]) -> int:
    """Remove MLflow's names of the folder's files. 0 bytes: the disk gets them back with the last name.

    Minus the bytes of files that still have other names, which the removal of the checkpoint will count and not free.
    """
    kept = 0
    for path in _files(iter([folder])):
        if path.name == MANIFEST:
            continue
        status = path.stat()
        names = links.pop((status.st_dev, status.st_ino), [])
        for name in names:
            name.unlink()
            fsync_folder(name.parent)
        if status.st_nlink > 1 + len(names):
            kept += status.st_size
    return -kept


def _remove_leftover(path: Path) -> int:
    if not path.exists():
        return 0
    inner = [path] if path.is_file() else list(_files(iter([path])))
    freed = sum(each.stat().st_size for each in inner if each.stat().st_nlink == 1)
    if path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path)
    return freed
