"""A lineage that begins with a version of another one: its first record names the other's models and tables where they stand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage import delivery, iterations, journal, lineages, registry, summaries, tables, version_pages, versions
from storage.checkpoints import open_folder
from storage.errors import StorageError
from storage.iterations import IterationRecord
from storage.lineages import HISTORY, Parent
from storage.refs import DatasetRef, ModelRef, Place

OWN_TABLES = ("prompts", "labels", "anchor", "reward_training", "evaluation")
"""Tables of a record that the next iteration reads or that say what its models learned from."""


def branch(place: Place, lineage: str, version: str, recipe: dict[str, Any]) -> IterationRecord:
    """Record the first iteration of ``place``'s lineage, numbered as that of its parent: the policy ``version`` of ``lineage``, and the reward model and critic of
    the same iteration; MLflow is told of each with its parent. No bytes are copied.

    A repeat after an interruption finds what it had made.

    Raises:
        StorageError: there is no such version, its weights or tables are not whole, or the lineage is not a branch of it.
    """
    root = Path(place.root)
    origin = origin_of(root, lineage, version)
    parent = Parent(lineage=lineage, version=version, iteration=origin.iteration)
    require_free(root, place.lineage, parent)
    if finished := iterations.find_record(place.at(iteration=origin.iteration)):
        return finished
    for ref in (origin.policy, origin.reward, origin.critic):
        if ref is not None:
            open_folder(ref)  # every byte is compared before a lineage is built on it
    lineages.record_recipe(place, recipe, parent)
    record = _recorded(place, origin, parent, _history(root, lineage, origin))
    summaries.write_summary(place, summaries.summary_of(root, place.lineage))
    return record


def origin_of(root: Path, lineage: str, version: str) -> IterationRecord:
    """The iteration that made a policy version, if a lineage can begin with it; else StorageError says why not."""
    record = origin_record(root, lineage, version)
    if damage := iterations.damage_of(record.model_copy(update={"rolled_back_to": None})):
        raise StorageError(f"policy v{version} of {lineage!r} can not be branched from: {damage}")
    return record


def origin_record(root: Path, lineage: str, version: str) -> IterationRecord:
    """The record of the iteration that made a policy version; StorageError names those that there are."""
    records = iterations.records(root, lineage)
    for record in records:
        if record.policy.version == version:
            return record
    known = ", ".join(f"v{record.policy.version}" for record in records) or "none"
    raise StorageError(f"lineage {lineage!r} has no policy v{version}; there are: {known}")


def require_free(root: Path, name: str, parent: Parent) -> None:
    """StorageError when the lineage is there and is something else than an unfinished branch of this parent."""
    if name in lineages.list_lineages(root) and lineages.read_parent(root, name) != parent:
        raise StorageError(f"lineage {name!r} is there already; take another name for the branch")


def _history(root: Path, lineage: str, origin: IterationRecord) -> dict[str, DatasetRef]:
    """The labels of the iterations before ``origin`` under names of their own, those it had from its own parent too."""
    earlier = [each for each in iterations.records(root, lineage) if each.iteration < origin.iteration]
    labels = [ref for record in [*earlier, origin] for name, ref in record.tables.items() if name.startswith(HISTORY)]
    labels += [record.tables["labels"] for record in earlier]
    return {f"{HISTORY}{number:04d}": ref for number, ref in enumerate(labels)}


def _recorded(place: Place, origin: IterationRecord, parent: Parent, history: dict[str, DatasetRef]) -> IterationRecord:
    here = place.at(iteration=origin.iteration)
    named = {name: origin.tables[name] for name in OWN_TABLES if name in origin.tables}
    policy, reward = versions.assign(here, origin.policy), versions.assign(here, origin.reward)
    critic = None if origin.critic is None else versions.assign(here, origin.critic)
    measured = {name: value for name, value in origin.metrics.items() if name.startswith("evaluation/")}
    record = IterationRecord(
        iteration=here.iteration,
        policy=policy,
        reference=policy,
        reward=reward,
        champion=policy,
        critic=critic,
        tables={**named, **history, "champion_evaluation": origin.tables["evaluation"]},
        metrics=measured,
        seconds=0.0,
        best_iteration=here.iteration if "evaluation/accuracy" in measured else None,
        promotion=f"branched from policy v{parent.version} of {parent.lineage}",
    )
    record = iterations.publish_record(here, record, reward)
    write_entries(here, record, parent)
    journal.mark_recorded(here, record)
    delivery.deliver(here)
    return record


def write_entries(place: Place, record: IterationRecord, parent: Parent) -> None:
    """What MLflow shows of a branch's first iteration: its models, each with the version that it is as parent, and tables.

    Raises:
        StorageError: the lineage that it was branched from does not hold the version any more.
    """
    root = Path(place.root)
    origin = origin_record(root, parent.lineage, parent.version)
    tags = {
        "grpo.lineage": place.lineage,
        "grpo.iteration": str(record.iteration),
        "grpo.stage": "branch",
        "grpo.branched_from": f"{parent.lineage}@{parent.version}",
    }
    params = lineages.flattened(lineages.read_recipe(root, place.lineage))
    journal.append(place, "run", {"name": f"{record.iteration:04d} branch", "tags": tags, "params": params})
    named = {name: record.tables[name] for name in OWN_TABLES if name in record.tables}
    for ref, source in (
        (record.policy, origin.policy),
        (record.reward, origin.reward),
        (record.critic, origin.critic),
    ):
        if ref is not None and source is not None:
            _write_version(place, ref, source, parent, named)
    for name, table in named.items():
        profile = {"iteration": record.iteration, **tables.metrics_of(table)}
        journal.append(place, "dataset", {"ref": table.model_dump(), "context": name, "profile": profile})
    journal.append(place, "finish", {"status": "FINISHED"})


def _write_version(
    place: Place, ref: ModelRef, source: ModelRef, parent: Parent, named: Mapping[str, DatasetRef]
) -> None:
    origin = registry.registered_name(parent.lineage, ref.role)
    sentence = f"iteration {place.iteration} · branched from {origin} v{source.version}"
    tags = {
        "grpo.parent": registry.model_uri(parent.lineage, source),
        version_pages.SENTENCE: sentence,
        version_pages.DATASETS: version_pages.tag_of(
            {name: (each.digest, each.num_rows) for name, each in named.items()}
        ),
    }
    journal.append(place, "version", {"ref": ref.model_dump(), "tags": tags, "description": sentence})
    journal.append(place, "drawing", {"ref": ref.model_dump(), "strip": "", "pictures": {}})
    for alias in ("current", "champion"):
        journal.append(place, "alias", {"ref": ref.model_dump(), "alias": alias, "cause": sentence})
