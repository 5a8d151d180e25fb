"""Record an iteration: the versions of what it made, its record, and then the summary."""

import time
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, iterations, summaries, tables, versions
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, ModelRef, Place
from tasks.check_guards import Guarded, accuracy_of
from tasks.promote import Champion
from tasks.promote_reward import RewardChoice
from tasks.report import Opened, Step


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_bootstrap(
    opened: Opened,
    policy: ModelRef,
    reward_model: ModelRef,
    critic: ModelRef | None,
    tables_by_name: dict[str, DatasetRef],
) -> IterationRecord:
    """Give the first policy, reward model and critic their versions and commit record 0; the policy is the champion."""
    place = opened.place
    if finished := iterations.find_record(place):
        return finished
    evaluated = tables.metrics_of(tables_by_name["evaluation"])
    policy, reward_model = versions.assign(place, policy), versions.assign(place, reward_model)
    record = IterationRecord(
        iteration=0,
        policy=policy,
        reference=policy,
        reward=reward_model,
        champion=policy,
        critic=versions.assign(place, critic) if critic is not None else None,
        tables=tables_by_name,
        metrics={f"evaluation/{name}": value for name, value in evaluated.items()},
        seconds=time.monotonic() - opened.began,
        best_iteration=0 if "accuracy" in evaluated else None,
    )
    return iterations.publish_record(place, record, reward_model)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_iteration(
    opened: Opened,
    last: IterationRecord,
    policy: ModelRef,
    candidate: ModelRef,
    critic: ModelRef | None,
    champion: Champion,
    chosen: RewardChoice,
    tables_by_name: dict[str, DatasetRef],
    steps: list[Step],
    guarded: Guarded,
) -> IterationRecord:
    """Give what the iteration made its versions and commit the record: from there on the iteration is finished.

    MLflow is told later, from the record: whether it answers changes nothing here.
    """
    place = opened.place
    if finished := iterations.find_record(place):
        return finished
    metrics = _iteration_metrics(last, candidate, champion, tables_by_name, steps)
    policy, candidate = versions.assign(place, policy), versions.assign(place, candidate)
    holder = policy if champion.is_new else champion.policy
    record = IterationRecord(
        iteration=place.iteration,
        policy=policy,
        reference=last.start,
        reward=last.reward if chosen.is_refused else candidate,
        champion=holder,
        critic=versions.assign(place, critic) if critic is not None else None,
        outcome="updated" if metrics["update/num_updates"] else "no_signal",
        tables={**tables_by_name, "champion_evaluation": champion.evaluation},
        metrics=metrics,
        seconds=time.monotonic() - opened.began,
        promotion=champion.reason,
        alarm=champion.alarm,
        best_iteration=champion.best_iteration,
        reward_promotion=chosen.reason,
        refused_reward=candidate if chosen.is_refused else None,
        guards=guarded.evidence,
        rolled_back_to=holder if guarded.action == "rollback" else None,
    )
    return iterations.publish_record(place, record, last.reward)


@task(cache_policy=NO_CACHE)
def tidy_up(place: Place, record: IterationRecord) -> None:
    """After an iteration's record: rewrite the summary, drop the weights of the steps before the last one.

    Repeated at the next start, in case a kill came between the record and this.
    """
    summaries.write_summary(place, summaries.summary_of(Path(place.root), place.lineage))
    checkpoints.prune_steps(place, [record.policy, *([record.critic] if record.critic else [])])


def _iteration_metrics(
    last: IterationRecord,
    reward_model: ModelRef,
    champion: Champion,
    tables_by_name: dict[str, DatasetRef],
    steps: list[Step],
) -> dict[str, float]:
    metrics = {f"evaluation/{name}": value for name, value in tables.metrics_of(tables_by_name["evaluation"]).items()}
    metrics |= {f"reward_model/{name}": value for name, value in checkpoints.metrics_of(reward_model).items()}
    metrics |= {f"labels/{name}": value for name, value in tables.metrics_of(tables_by_name["labels"]).items()}
    metrics |= {f"replay/{name}": value for name, value in tables.metrics_of(tables_by_name["reward_training"]).items()}
    metrics |= {f"promotion/{name}": value for name, value in champion.metrics.items()}
    metrics["alarm/is_standing"] = float(bool(champion.alarm))
    if champion.best_iteration is not None:
        metrics["alarm/best_iteration"] = float(champion.best_iteration)
    if (before := accuracy_of(last)) is not None:
        metrics["evaluation/accuracy_before"] = before
    updates = [checkpoints.metrics_of(step.policy) for step in steps]
    metrics["update/num_updates"] = sum(each["num_updates"] for each in updates)
    metrics["update/num_steps_without_signal"] = float(sum(not each["num_updates"] for each in updates))
    means = [tables.metrics_of(each.rewards) for step in steps for each in step.rounds]
    if weighted := [(m["reward_mean"], m["num_rows"] - m["num_without_reward"]) for m in means if "reward_mean" in m]:
        metrics["reward_mean"] = sum(mean * rows for mean, rows in weighted) / sum(rows for _, rows in weighted)
    return metrics
