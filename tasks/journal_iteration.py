"""Write down for MLflow what a finished iteration's record and tables say: models, datasets, scores, decisions."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import (
    branching,
    checkpoints,
    delivery,
    iterations,
    journal,
    lineage_pages,
    lineages,
    registry,
    stages,
    tables,
)
from storage.decisions import Decision
from storage.iterations import IterationRecord
from storage.manifest import code, created_at
from storage.refs import DatasetRef, ModelRef, Place, iteration_name
from tasks.evaluation.sentences import measured_sentence, reward_sentence
from tasks.grpo.sample_metrics import of_rounds

STEP_TABLES = ("completions", "rewards", "samples")
ALIASES = {"promote": ("champion",), "rollback": ("champion", "current")}
"""Kind of decision -> the aliases that move to the chosen version."""


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def journal_iteration(place: Place, record: IterationRecord) -> None:
    """Put an iteration into the journal, unless it stands there already, and deliver what is pending.

    Repeated at the next start, in case a kill came between the record and this.
    """
    if not journal.is_recorded(Path(place.root), place.lineage, record):
        write_entries(place, record)
    delivery.deliver(place)


def write_entries(place: Place, record: IterationRecord) -> None:
    """Everything that MLflow shows of a finished iteration, from its record and tables alone.

    Raises:
        LostLock: another run took the lineage.
    """
    root = Path(place.root)
    earlier = [each for each in iterations.records(root, place.lineage) if each.iteration < record.iteration]
    before = earlier[-1] if earlier else None
    if before is None and (parent := lineages.read_parent(root, place.lineage)) is not None:
        branching.write_entries(place, record, parent)
        return
    datasets = datasets_of(place, record)
    open_run(place)
    for ref, parents, sentence, refused in _models(record, before):
        _append_version(place, ref, parents, datasets, sentence, refused)
    if before is not None:
        consumed = [record.reference, before.reward, *([before.critic] if before.critic else [])]
        journal.append(place, "consumed", {"refs": [each.model_dump() for each in consumed]})
    for name, table in datasets.items():
        profile = {"iteration": place.iteration, **tables.metrics_of(table)}
        journal.append(place, "dataset", {"ref": table.model_dump(), "context": name, "profile": profile})
    _append_aliases(place, record)
    stamp = created_at(Path(record.tables["evaluation"].uri))
    journal.append(place, "metrics", {"metrics": record.metrics, "step": 0, "created_at": stamp})
    _append_decisions(place, record)
    journal.append(place, "finish", {"status": "FINISHED"})
    journal.mark_recorded(place, record)


def write_steps(place: Place, record: IterationRecord) -> None:
    """The metrics of an iteration's steps, as they were logged while it ran."""
    open_run(place)
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


def write_decision(place: Place, decision: Decision) -> None:
    """What a person decided: the aliases that move, the version's tag, and after a rollback the run that begins anew."""
    ref = decision.policy.model_dump()
    for alias in ALIASES[decision.kind]:
        journal.append(place, "alias", {"ref": ref, "alias": alias, "cause": decision.sentence})
    journal.append(place, "version_tags", {"ref": ref, "tags": {f"grpo.{decision.kind}": decision.sentence}})


def open_run(place: Place) -> None:
    """The MLflow run of an iteration, begun or gone on with."""
    stage = "bootstrap" if place.iteration == 0 else "iteration"
    tags = {
        "grpo.lineage": place.lineage,
        "grpo.iteration": str(place.iteration),
        "grpo.stage": stage,
        "grpo.code": code().commit,
    }
    recipe = lineages.read_recipe(Path(place.root), place.lineage)
    content = {"name": f"{place.iteration:04d} {stage}", "tags": tags, "params": lineages.flattened(recipe)}
    journal.append(place, "run", content)


def datasets_of(place: Place, record: IterationRecord) -> dict[str, DatasetRef]:
    """The tables of an iteration by name: those of its record, and completions_001, rewards_001, samples_001 of its steps.

    The tables of a round of replacement end in -r01, -r02, ...
    """
    named: dict[str, DatasetRef] = {}
    base = place.lineage_folder / iteration_name(record.iteration)
    for section, folders in stages.measured(Path(place.root), place.lineage, record.iteration).items():
        if not section.startswith("step-"):
            continue
        suffix = section.removeprefix("step-").replace("-round-", "-r")
        for table in STEP_TABLES:
            if table in folders:
                named[f"{table}_{suffix}"] = tables.ref_at(base / section / table)
    return named | {name: ref for name, ref in record.tables.items() if name != "champion_evaluation"}


def _models(
    record: IterationRecord, before: IterationRecord | None
) -> list[tuple[ModelRef, dict[str, ModelRef], str, str]]:
    """Every model that the iteration made: its version, its parents by role, its sentence, why it was refused ("")."""
    named = f"iteration {record.iteration}"
    measured = measured_sentence(record.metrics)
    if before is None:
        parents = {"parent": record.policy}
        made = [
            (record.policy, {}, f"{named} · first policy · {measured}", ""),
            (record.reward, parents, f"{named} · first reward model", ""),
        ]
        return [*made, *([(record.critic, parents, f"{named} · first critic", "")] if record.critic else [])]
    policy_parents = {"parent": record.reference, "reference": record.reference, "reward_model": before.reward}
    if before.critic is not None:
        policy_parents["critic"] = before.critic
    why = record.reward_promotion if record.refused_reward is not None else ""
    learnt = record.refused_reward or record.reward
    said = " · ".join(part for part in (named, reward_sentence(record.metrics), why) if part)
    models = [
        (record.policy, policy_parents, f"{named} · {measured}", ""),
        (learnt, {"parent": before.reward}, said, why),
    ]
    if record.critic is not None and before.critic is not None:
        models.append((record.critic, {"parent": before.critic}, f"{named} · critic", ""))
    return models


def _append_version(
    place: Place,
    ref: ModelRef,
    parents: dict[str, ModelRef],
    datasets: dict[str, DatasetRef],
    sentence: str,
    refused: str,
) -> None:
    tags = {f"grpo.{role}": registry.model_uri(place.lineage, parent) for role, parent in parents.items()}
    tags["grpo.datasets"] = ",".join(f"{name}:{each.digest[:32]}" for name, each in sorted(datasets.items()))
    tags["grpo.code"] = code().commit
    if (rank := checkpoints.metrics_of(ref).get("lora_rank")) and "reference" in parents:
        tags |= {"grpo.lora_rank": f"{rank:g}", "grpo.lora_base": parents["reference"].digest}
    if refused:
        tags["grpo.refused"] = refused
    content = {"ref": ref.model_dump(), "tags": tags, "description": sentence[: lineage_pages.MAX_CHARACTERS]}
    journal.append(place, "version", content)


def _append_aliases(place: Place, record: IterationRecord) -> None:
    critic = [record.critic] if record.critic is not None else []
    held = {"current": [record.start, record.reward, *critic], "champion": [record.champion, record.reward, *critic]}
    for alias, refs in held.items():
        for ref in refs:
            content = {"ref": ref.model_dump(), "alias": alias, "cause": f"iteration {record.iteration}"}
            journal.append(place, "alias", content)


def _append_decisions(place: Place, record: IterationRecord) -> None:
    said = {
        "grpo.promotion": record.promotion,
        "grpo.alarm": record.alarm,
        "grpo.guards": "; ".join(record.guards),
        "grpo.rolled_back_to": (
            registry.model_uri(place.lineage, record.rolled_back_to) if record.rolled_back_to is not None else ""
        ),
    }
    if tags := {name: value for name, value in said.items() if value}:
        journal.append(place, "tags", {"tags": tags})
