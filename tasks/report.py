"""Record an iteration: its MLflow run, the registered versions, the lineage record and the summary."""

import time
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, iterations, lineage_pages, lineages, registry, summaries, tables, tracking
from storage.iterations import IterationRecord
from storage.manifest import code, created_at
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.promote import Champion


class Opened(Frozen):
    """An iteration under way: its place, its MLflow run, and when this process began it (monotonic seconds)."""

    place: Place
    run_id: str
    began: float


class Step(Frozen):
    """What one inner step left behind."""

    number: int
    selection: DatasetRef
    completions: DatasetRef
    rewards: DatasetRef
    samples: DatasetRef
    policy: ModelRef


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def open_iteration(place: Place) -> Opened:
    """Open (or go on with) the MLflow run of this iteration."""
    recipe = lineages.read_recipe(Path(place.root), place.lineage)
    name = f"{place.iteration:04d} {'bootstrap' if place.iteration == 0 else 'iteration'}"
    run_id = tracking.ensure_run(
        place,
        name=name,
        tags={
            "grpo.lineage": place.lineage,
            "grpo.iteration": str(place.iteration),
            "grpo.stage": "bootstrap" if place.iteration == 0 else "iteration",
            "grpo.code": code().commit,
        },
        params=lineages.flattened(recipe),
    )
    return Opened(place=place, run_id=run_id, began=time.monotonic())


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def report_step(opened: Opened, step: Step) -> None:
    """Log a step's metrics at its number; time stamps are the stages' own, so that a repeat changes nothing."""
    for prefix, ref in (("rollout", step.completions), ("reward", step.rewards), ("samples", step.samples)):
        metrics = {f"{prefix}/{name}": value for name, value in tables.metrics_of(ref).items()}
        tracking.log_metrics(
            opened.place, opened.run_id, metrics, step=step.number, created_at=created_at(Path(ref.uri))
        )
    metrics = {f"update/{name}": value for name, value in checkpoints.metrics_of(step.policy).items()}
    tracking.log_metrics(
        opened.place, opened.run_id, metrics, step=step.number, created_at=created_at(Path(step.policy.uri))
    )


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_bootstrap(
    opened: Opened, policy: ModelRef, reward_model: ModelRef, tables_by_name: dict[str, DatasetRef]
) -> IterationRecord:
    """Register the first policy and reward model, both current, the policy also champion, and commit record 0."""
    place = opened.place
    if finished := iterations.find_record(place):
        return finished
    evaluated = tables.metrics_of(tables_by_name["evaluation"])
    accuracy = f"accuracy {evaluated['accuracy']:.3f}" if "accuracy" in evaluated else "accuracy unknown"
    inputs = {name: ref for name, ref in tables_by_name.items() if name != "champion_evaluation"}
    policy = _register(opened, policy, {}, inputs, f"iteration 0 · first policy · {accuracy}")
    reward_model = _register(opened, reward_model, {"parent": policy}, inputs, "iteration 0 · first reward model")
    _log_datasets(opened, inputs)
    for ref in (policy, reward_model):
        registry.set_alias(place, ref, "current")
    registry.set_alias(place, policy, "champion")
    registry.set_alias(place, reward_model, "champion")
    metrics = {f"evaluation/{name}": value for name, value in evaluated.items()}
    return _commit(
        opened,
        IterationRecord(
            iteration=0,
            policy=policy,
            reference=policy,
            reward=reward_model,
            champion=policy,
            tables=tables_by_name,
            metrics=metrics,
            seconds=time.monotonic() - opened.began,
        ),
        scored_by=reward_model,
    )


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_iteration(
    opened: Opened,
    last: IterationRecord,
    policy: ModelRef,
    reward_model: ModelRef,
    champion: Champion,
    tables_by_name: dict[str, DatasetRef],
    steps: list[Step],
) -> IterationRecord:
    """Register what the iteration made, move the aliases, log the datasets, and commit its record last.

    Everything before the record finds what an interrupted run left; everything after it can be repeated.
    """
    place = opened.place
    if finished := iterations.find_record(place):
        return finished
    metrics = _iteration_metrics(last, reward_model, champion, tables_by_name, steps)
    accuracy = metrics.get("evaluation/accuracy")
    inputs = {f"{name}_{step.number:03d}": ref for step in steps for name, ref in _step_tables(step).items()}
    datasets = {**inputs, **{name: ref for name, ref in tables_by_name.items() if name != "champion_evaluation"}}
    parents = {"parent": last.policy, "reference": last.policy, "reward_model": last.reward}
    measured = "accuracy unknown" if accuracy is None else f"accuracy {accuracy:.3f}"
    policy = _register(opened, policy, parents, datasets, f"iteration {place.iteration} · {measured}")
    replayed = f"{metrics['replay/num_fresh']:.0f} new and {metrics['replay/num_replayed']:.0f} replayed pairs"
    reward_model = _register(
        opened, reward_model, {"parent": last.reward}, datasets, f"iteration {place.iteration} · {replayed}"
    )
    registry.log_consumed(place, opened.run_id, [last.policy, last.reward])
    _log_datasets(opened, datasets)
    holder = policy if champion.is_new else last.champion
    for ref, alias in (
        (policy, "current"),
        (reward_model, "current"),
        (reward_model, "champion"),
        (holder, "champion"),
    ):
        registry.set_alias(place, ref, alias)
    return _commit(
        opened,
        IterationRecord(
            iteration=place.iteration,
            policy=policy,
            reference=last.policy,
            reward=reward_model,
            champion=holder,
            tables={**tables_by_name, "champion_evaluation": champion.evaluation},
            metrics=metrics,
            seconds=time.monotonic() - opened.began,
            promotion=champion.reason,
        ),
        scored_by=last.reward,
    )


@task(cache_policy=NO_CACHE)
def tidy_up(place: Place, record: IterationRecord) -> None:
    """After an iteration's record: rewrite the summary, drop the weights of the steps before the last one.

    Repeated at the next start, in case a kill came between the record and this.
    """
    summaries.write_summary(place, summaries.summary_of(Path(place.root), place.lineage))
    checkpoints.prune_steps(place, record.policy)


def _step_tables(step: Step) -> dict[str, DatasetRef]:
    return {"completions": step.completions, "rewards": step.rewards, "samples": step.samples}


def _iteration_metrics(
    last: IterationRecord,
    reward_model: ModelRef,
    champion: Champion,
    tables_by_name: dict[str, DatasetRef],
    steps: list[Step],
) -> dict[str, float]:
    metrics = {f"evaluation/{name}": value for name, value in tables.metrics_of(tables_by_name["evaluation"]).items()}
    metrics |= {f"reward_model/{name}": value for name, value in checkpoints.metrics_of(reward_model).items()}
    metrics |= {f"replay/{name}": value for name, value in tables.metrics_of(tables_by_name["reward_training"]).items()}
    metrics |= {f"promotion/{name}": value for name, value in champion.metrics.items()}
    if "evaluation/accuracy" in last.metrics:
        metrics["evaluation/accuracy_before"] = last.metrics["evaluation/accuracy"]
    means = [tables.metrics_of(step.rewards) for step in steps]
    if weighted := [(m["reward_mean"], m["num_rows"] - m["num_without_reward"]) for m in means if "reward_mean" in m]:
        metrics["reward_mean"] = sum(mean * rows for mean, rows in weighted) / sum(rows for _, rows in weighted)
    return metrics


def _register(
    opened: Opened, ref: ModelRef, parents: dict[str, ModelRef], datasets: dict[str, DatasetRef], sentence: str
) -> ModelRef:
    place = opened.place
    experiment = tracking.ensure_experiment(place)
    tags = {f"grpo.{role}": registry.model_uri(place.lineage, parent) for role, parent in parents.items()}
    tags["grpo.datasets"] = ",".join(f"{name}:{each.digest[:32]}" for name, each in sorted(datasets.items()))
    tags["grpo.code"] = code().commit
    came_from = {
        role.replace("_", " "): f"[{registry.registered_name(place.lineage, parent.role)} v{parent.version}]"
        f"({lineage_pages.version_link(registry.registered_name(place.lineage, parent.role), parent.version)})"
        for role, parent in parents.items()
    }
    came_from["run"] = f"[iteration {place.iteration}]({lineage_pages.run_link(experiment, opened.run_id)})"
    for name in ("prompts", "pairs", "reward_training", "evaluation"):
        if name in datasets:
            query = f"dataset.digest = '{datasets[name].digest[:32]}'"
            came_from[name.replace("_", " ")] = (
                f"[{datasets[name].num_rows} rows]({lineage_pages.search_link(experiment, query)}) `{datasets[name].digest[:12]}`"
            )
    query = f"tags.`grpo.iteration` = '{place.iteration + 1}'"
    description = lineage_pages.describe(sentence, came_from, lineage_pages.search_link(experiment, query))
    return registry.register(place, ref, run_id=opened.run_id, tags=tags, description=description)


def _log_datasets(opened: Opened, datasets: dict[str, DatasetRef]) -> None:
    for name, ref in datasets.items():
        tracking.log_dataset(
            opened.place,
            opened.run_id,
            ref,
            context=name,
            profile={"iteration": opened.place.iteration, **tables.metrics_of(ref)},
        )


def _commit(opened: Opened, record: IterationRecord, scored_by: ModelRef) -> IterationRecord:
    place = opened.place
    tracking.log_metrics(
        place, opened.run_id, record.metrics, step=0, created_at=created_at(Path(record.tables["evaluation"].uri))
    )
    tracking.finish_run(place, opened.run_id)
    return iterations.publish_record(place, record, scored_by)
