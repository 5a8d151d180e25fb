"""What the stages of an iteration measured, read from their manifests: also after the weights were removed."""

from pathlib import Path

from storage.manifest import MANIFEST, read_manifest
from storage.refs import DatasetRef, iteration_name
from storage.tables import ref_at

Metrics = dict[str, float]
STEP_TABLES = ("completions", "rewards", "samples")
"""Tables that every step of an iteration has."""


def measured(root: Path, lineage: str, iteration: int) -> dict[str, dict[str, Metrics]]:
    """Section ("" for the iteration itself, "step-001", "evaluation", ...) -> folder ("rewards", "policy", ...) -> metrics.

    Raises:
        CorruptArtifact: a manifest can not be read.
    """
    base = root / lineage / iteration_name(iteration)
    found: dict[str, dict[str, Metrics]] = {}
    for path in sorted([*base.glob(f"[!.]*/{MANIFEST}"), *base.glob(f"[!.]*/[!.]*/{MANIFEST}")]):
        folder = path.parent
        section = "" if folder.parent == base else folder.parent.name
        if (manifest := read_manifest(folder)) is not None:
            found.setdefault(section, {})[folder.name] = manifest.metrics
    return found


def step_tables(root: Path, lineage: str, iteration: int) -> dict[str, DatasetRef]:
    """completions_001, rewards_001, samples_001, ... of an iteration's steps.

    The tables of a round of replacement end in -r01, -r02, ...

    Raises:
        CorruptArtifact: a manifest can not be read.
    """
    base = root / lineage / iteration_name(iteration)
    found: dict[str, DatasetRef] = {}
    for section, folders in measured(root, lineage, iteration).items():
        if section.startswith("step-"):
            suffix = section.removeprefix("step-").replace("-round-", "-r")
            found |= {f"{name}_{suffix}": ref_at(base / section / name) for name in STEP_TABLES if name in folders}
    return found
