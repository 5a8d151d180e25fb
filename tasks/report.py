"""Open an iteration's MLflow run and log what its steps measured."""

import time
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, lineages, tables, tracking
from storage.manifest import code, created_at
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.grpo.sample_metrics import of_rounds


class Opened(Frozen):
    """An iteration under way: its place, its MLflow run, and when this process began it (monotonic seconds)."""

    place: Place
    run_id: str
    began: float


class Round(Frozen):
    """One draw of prompts within a step; a step without dynamic sampling has one."""

    selection: DatasetRef
    completions: DatasetRef
    rewards: DatasetRef
    samples: DatasetRef


class Step(Frozen):
    """What one inner step left behind."""

    number: int
    rounds: list[Round]
    policy: ModelRef
    critic: ModelRef | None


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
    first = step.rounds[0]
    logged = [
        ("rollout", first.completions.uri, tables.metrics_of(first.completions)),
        ("reward", first.rewards.uri, tables.metrics_of(first.rewards)),
        ("samples", first.samples.uri, of_rounds([tables.metrics_of(each.samples) for each in step.rounds])),
        ("update", step.policy.uri, checkpoints.metrics_of(step.policy)),
    ]
    if step.critic is not None:
        logged.append(("critic", step.critic.uri, checkpoints.metrics_of(step.critic)))
    for prefix, uri, metrics in logged:
        named = {f"{prefix}/{name}": value for name, value in metrics.items()}
        tracking.log_metrics(opened.place, opened.run_id, named, step=step.number, created_at=created_at(Path(uri)))
