"""Open an iteration's MLflow run and log what its steps measured."""

import time
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, delivery, tables
from storage.manifest import code
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.grpo.sample_metrics import of_rounds
from tasks.journal_iteration import open_run, write_metrics


class Opened(Frozen):
    """An iteration under way: its place, and when this process began it (monotonic seconds)."""

    place: Place
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
    open_run(place, code().commit)
    delivery.deliver(place)
    return Opened(place=place, began=time.monotonic())


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
        write_metrics(opened.place, prefix, Path(uri), metrics, step.number)
    delivery.deliver(opened.place)
