"""`igrpo export`: a policy version with its tables and a model card, in a folder that transformers loads."""

from pathlib import Path

from rich.console import Console

from storage import decisions, exporting, iterations, lineages, registry, tables
from storage.errors import StorageError
from storage.iterations import IterationRecord
from storage.manifest import Manifest, read_manifest
from storage.refs import DatasetRef, check_lineage_name, iteration_name
from tasks.reporting.model_card import Data, Version, model_card, scores
from tasks.values.seeds import derive_seed


def export_version(out: Console, root: Path, lineage: str, version: int | None, target: Path) -> None:
    """Write the version (None: the champion) to ``target`` and say what is in it.

    Raises:
        StorageError: there is no such version, its weights are gone or damaged, or ``target`` is not free.
    """
    lineages.require_lineage(root, check_lineage_name(lineage))
    recipe = lineages.read_recipe(root, lineage)
    record = _chosen(root, lineage, version)
    named = {**record.tables, **_rollouts(root, lineage, record.iteration)}
    measured = scores(tables.read(record.tables["evaluation"]), seed=derive_seed(recipe["seed"], "model card"))
    data = [Data(name, ref.num_rows, ref.digest) for name, ref in named.items()]
    card = model_card(_version(root, lineage, record), recipe, measured, data)
    num_bytes = exporting.export(target, record.policy, named, recipe, card)
    out.print(
        f"policy v{record.policy.version} of {lineage} (iteration {record.iteration}) in {target}: {len(named)} tables, "
        f"{num_bytes:,} bytes; `sha256sum --check {exporting.DIGESTS_FILE}` there checks them",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _chosen(root: Path, lineage: str, version: int | None) -> IterationRecord:
    records = iterations.records(root, lineage)
    if not records:
        raise StorageError(f"lineage {lineage!r} has no finished iteration yet; there is nothing to export")
    champion = decisions.in_force(records[-1], decisions.decisions(root, lineage)).champion.version
    wanted = champion if version is None else str(version)
    for record in records:
        if record.policy.version == wanted:
            return record
    known = ", ".join(f"v{record.policy.version}" for record in records)
    raise StorageError(f"lineage {lineage!r} has no policy v{wanted}; there are: {known}")


def _rollouts(root: Path, lineage: str, iteration: int) -> dict[str, DatasetRef]:
    """The completions, rewards and samples of the iteration's steps, named after both."""
    base = root / lineage / iteration_name(iteration)
    return {
        f"{folder.parent.name}-{folder.name}": tables.ref_at(folder)
        for name in ("completions", "rewards", "samples")
        for folder in sorted(base.glob(f"step-*/{name}"))
    }


def _version(root: Path, lineage: str, record: IterationRecord) -> Version:
    manifest = read_manifest(Path(record.policy.uri))
    parents = {}
    earlier = [each for each in iterations.records(root, lineage) if each.iteration == record.iteration - 1]
    for before in earlier:
        parents = {"parent": before.start, "reference": record.reference, "reward model": before.reward}
    origin = lineages.read_parent(root, lineage)
    note = "" if origin is None else f"Its lineage was branched from policy v{origin.version} of {origin.lineage}."
    return Version(
        lineage=lineage,
        version=record.policy.version,
        iteration=record.iteration,
        digest=record.policy.digest,
        code=_code(manifest),
        created_at="" if manifest is None else manifest.created_at,
        parents={role: registry.model_uri(lineage, ref) for role, ref in parents.items()},
        note=note,
    )


def _code(manifest: Manifest | None) -> str:
    return "unknown" if manifest is None else f"{manifest.code.version}, commit {manifest.code.commit}"
