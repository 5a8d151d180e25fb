"""What the stages of an iteration measured, read from their manifests: also after the weights were removed."""

from pathlib import Path

from storage.manifest import MANIFEST, read_manifest
from storage.refs import iteration_name

Metrics = dict[str, float]


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
