"""Plan and record a training of the reward model that stands outside of an iteration."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, decisions, registry, tracking
from storage.iterations import IterationRecord
from storage.manifest import code
from storage.refs import DatasetRef, ModelRef, Place
from tasks.promote_reward import RewardChoice


@task(cache_policy=NO_CACHE)
def plan_retraining(place: Place, last: IterationRecord) -> int:
    """The number of this training after iteration ``last``, from 1; a training that was interrupted keeps its number.

    Raises:
        StorageError: the next iteration is under way with the reward model that there is.
    """
    decisions.require_between_iterations(place, last)
    taken = decisions.decisions(Path(place.root), place.lineage)
    return 1 + sum(each.kind == "reward" and each.after_iteration == last.iteration for each in taken)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def adopt_reward(
    place: Place, last: IterationRecord, candidate: ModelRef, chosen: RewardChoice, training: DatasetRef, why: str
) -> ModelRef:
    """Register the candidate as a version; unless it is refused, the next iteration is scored with it. Gives that model.

    The decision is written last; everything before it finds what an interrupted run left.
    """
    run_id = tracking.ensure_run(place, name=f"{place.iteration:04d}", tags={}, params={})
    tags = {
        "grpo.parent": registry.model_uri(place.lineage, last.reward),
        "grpo.datasets": f"reward_training:{training.digest[:32]}",
        "grpo.code": code().commit,
    }
    if chosen.is_refused:
        tags["grpo.refused"] = chosen.reason
    said = f"retrained after iteration {place.iteration} · {chosen.reason} · {why}"
    candidate = registry.register(place, candidate, run_id=run_id, tags=tags, description=said)
    tracking.finish_run(place, run_id)
    in_use = last.reward if chosen.is_refused else candidate
    for alias in ("current", "champion"):
        registry.set_alias(place, in_use, alias)
    accuracy = checkpoints.metrics_of(candidate).get("heldout_accuracy_after")
    measured = "" if accuracy is None else f" (accuracy on held-out labels {accuracy:.3f})"
    verdict = f"v{candidate.version} refused, {chosen.reason}" if chosen.is_refused else chosen.reason
    decisions.take_reward(place, in_use, last, f"{why}; {verdict}{measured}", "deployment retrain-reward")
    return in_use
