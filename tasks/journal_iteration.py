"""Write down for MLflow what a finished iteration's record and tables say: its run, tables, metrics, versions."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import (
    branching,
    decisions,
    delivery,
    iterations,
    journal,
    lineage_pages,
    lineages,
    registry,
    stages,
    tables,
    version_entries,
    version_pages,
)
from storage.decisions import Decision
from storage.iterations import IterationRecord
from storage.manifest import created_at
from storage.refs import DatasetRef, Place, Role, iteration_name
from tasks.evaluation.sentences import measured_sentence, reward_sentence
from tasks.grpo.sample_metrics import of_rounds
from tasks.reporting.strip import COLUMNS, NUM_ROWS, strip_of
from tasks.reporting.strip_rows import rows_of


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def journal_iteration(place: Place, record: IterationRecord) -> None:
    """Put an iteration into the journal, unless it stands there already, and deliver what is pending.

    Repeated at the next start, in case a kill came between the record and this.
    """
    root = Path(place.root)
    if not journal.is_recorded(root, place.lineage, record):
        taken = decisions.decisions(root, place.lineage)
        told = [each for each in iterations.records(root, place.lineage) if each.iteration <= record.iteration]
        write_entries(place, told, taken)
        standing = decisions.in_force(told[-1], taken)
        version_entries.write_aliases(place, standing, f"iteration {record.iteration}: {standing.promotion}")
        journal.mark_recorded(place, record)
    delivery.deliver(place)


def write_entries(place: Place, told: Sequence[IterationRecord], taken: Sequence[Decision]) -> None:
    """Everything that MLflow shows of a finished iteration but the aliases, from records and tables alone.

    Args:
        told: the lineage's records from its first on; the last one is this iteration's.
        taken: the decisions by hand. The iteration went on from the record before with what was decided since.

    Raises:
        LostLock: another run took the lineage.
    """
    record, root = told[-1], Path(place.root)
    history = [decisions.in_force(each, list(taken)) for each in told[:-1]]
    if not history and (parent := lineages.read_parent(root, place.lineage)) is not None:
        branching.write_entries(place, record, parent)
        return
    before = history[-1] if history else None
    datasets = datasets_of(place, record)
    open_run(place, version_entries.commit_of(record.policy))
    measured, learnt = measured_sentence(record.metrics), reward_sentence(record.metrics)
    for made in version_entries.models_of(place.lineage, record, before, measured, learnt):
        version_entries.write_version(place, made, datasets)
    if before is not None:
        consumed = [record.reference, before.reward, *([before.critic] if before.critic else [])]
        journal.append(place, "consumed", {"refs": [each.model_dump() for each in consumed]})
    for name, table in datasets.items():
        profile = {"iteration": place.iteration, **tables.metrics_of(table)}
        journal.append(place, "dataset", {"ref": table.model_dump(), "context": name, "profile": profile})
    stamp = created_at(Path(record.tables["evaluation"].uri))
    journal.append(place, "metrics", {"metrics": record.metrics, "step": 0, "created_at": stamp})
    said = {"grpo.promotion": record.promotion, "grpo.alarm": record.alarm, "grpo.guards": "; ".join(record.guards)}
    if tags := {name: text for name, text in said.items() if text}:
        journal.append(place, "tags", {"tags": tags})
    if before is None or before.champion.version != record.champion.version:
        version_entries.write_champion(place, record)
    _write_pages(place, [*history, record][-NUM_ROWS:])
    journal.append(place, "finish", {"status": "FINISHED"})


def write_steps(place: Place, record: IterationRecord) -> None:
    """The metrics of an iteration's steps, as they were logged while it ran."""
    open_run(place, version_entries.commit_of(record.policy))
    base = place.lineage_folder / iteration_name(record.iteration)
    sections = stages.measured(Path(place.root), place.lineage, record.iteration)
    for section, folders in sections.items():
        if not section.startswith("step-") or "-round-" in section or "policy" not in folders:
            continue
        rounds = [each for name, each in sections.items() if name == section or name.startswith(f"{section}-round-")]
        samples = of_rounds([each["samples"] for each in rounds if "samples" in each])
        logged = {
            "rollout": ("completions", folders["completions"]),
            "reward": ("rewards", folders["rewards"]),
            "samples": ("samples", samples),
            "update": ("policy", folders["policy"]),
            **({"critic": ("critic", folders["critic"])} if "critic" in folders else {}),
        }
        for prefix, (folder, metrics) in logged.items():
            number = int(section.removeprefix("step-"))
            write_metrics(place, prefix, base / section / folder, metrics, number)


def write_metrics(place: Place, prefix: str, folder: Path, metrics: dict[str, float], step: int) -> None:
    """What one stage of a step measured, stamped with the time of the stage's commit: a repeat changes nothing."""
    named = {f"{prefix}/{name}": value for name, value in metrics.items()}
    journal.append(place, "metrics", {"metrics": named, "step": step, "created_at": created_at(folder)})


def open_run(place: Place, commit: str) -> None:
    """The MLflow run of an iteration, begun or gone on with; ``commit`` is that of the code that works or worked on it."""
    stage = "bootstrap" if place.iteration == 0 else "iteration"
    tags = {
        "grpo.lineage": place.lineage,
        "grpo.iteration": str(place.iteration),
        "grpo.stage": stage,
        "grpo.code": commit,
    }
    recipe = lineages.read_recipe(Path(place.root), place.lineage)
    content = {"name": f"{place.iteration:04d} {stage}", "tags": tags, "params": lineages.flattened(recipe)}
    journal.append(place, "run", content)


def datasets_of(place: Place, record: IterationRecord) -> dict[str, DatasetRef]:
    """The tables of an iteration by name: those of its record, and completions_001, rewards_001, samples_001 of its steps."""
    named = stages.step_tables(Path(place.root), place.lineage, record.iteration)
    return named | {name: ref for name, ref in record.tables.items() if name != "champion_evaluation"}


def _write_pages(place: Place, told: Sequence[IterationRecord]) -> None:
    """The pages of the last record's versions; ``told`` are the records that the strip shows, decisions included."""
    record = told[-1]
    learnt = record.refused_reward or record.reward
    shown = [each.model_dump() for each in told]
    rows = rows_of(shown, _num_rollouts(place, told), partial(_version_address, place.lineage), _data_address)
    for ref in (record.policy, learnt, record.critic):
        if ref is None:
            continue
        strip = strip_of(rows, f"{ref.role}-{ref.version}", marked=ref.role if ref.role in COLUMNS else "")
        content = {"ref": ref.model_dump(), "strip": strip.html, "pictures": dict(strip.pictures)}
        journal.append(place, "drawing", content)


def _num_rollouts(place: Place, records: Sequence[IterationRecord]) -> dict[int, int]:
    """Iteration -> its completions, rounds of replacement included."""
    return {
        record.iteration: sum(
            ref.num_rows for name, ref in datasets_of(place, record).items() if name.startswith("completions_")
        )
        for record in records
    }


def _version_address(lineage: str, role: Role, version: str) -> str:
    name = registry.registered_name(lineage, role)
    return lineage_pages.version_link(name, version_pages.placeholder(role, version))


def _data_address(iteration: int) -> str:
    return lineage_pages.run_search_link("{experiment}", f"tags.`grpo.iteration` = '{iteration}'")
