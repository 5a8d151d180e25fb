"""Plan and record a training of the reward model that stands outside of an iteration."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, decisions, delivery, journal, tables, version_entries, versions
from storage.decisions import Decision
from storage.iterations import IterationRecord
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
    """Give the candidate its version; unless it is refused, the next iteration is scored with it. Gives that model.

    The decision is written last; everything before it finds what an interrupted run left.
    """
    candidate = versions.assign(place, candidate)
    in_use = last.reward if chosen.is_refused else candidate
    accuracy = checkpoints.metrics_of(candidate).get("heldout_accuracy_after")
    measured = "" if accuracy is None else f" (accuracy on held-out labels {accuracy:.3f})"
    verdict = f"v{candidate.version} refused, {chosen.reason}" if chosen.is_refused else chosen.reason
    said = f"{why}; {verdict}{measured}"
    write_retraining(place, last.reward, candidate, in_use, training, said)
    decisions.take_reward(place, in_use, last, said, "deployment retrain-reward")
    delivery.deliver(place)
    return in_use


def write_retraining(
    place: Place, before: ModelRef, candidate: ModelRef, in_use: ModelRef, training: DatasetRef, said: str
) -> None:
    """What MLflow shows of a training outside of an iteration: the version, its page, and which one is in use."""
    verdict = "grpo.reward_promotion" if in_use.digest == candidate.digest else "grpo.refused"
    sentence = f"retrained after iteration {place.iteration} · {said}"
    made = version_entries.Made(candidate, {"parent": before}, sentence, {verdict: said})
    version_entries.write_version(place, made, {"reward_training": training})
    journal.append(place, "drawing", {"ref": candidate.model_dump(), "strip": "", "pictures": {}})
    for alias in ("current", "champion"):
        journal.append(place, "alias", {"ref": in_use.model_dump(), "alias": alias, "cause": sentence})


def write_decided_retraining(place: Place, record: IterationRecord, decision: Decision, taken: list[Decision]) -> None:
    """``write_retraining`` of a training whose decision stands in the store; nothing for a decision of another kind."""
    if decision.reward is None:
        return
    earlier = [each for each in taken[: taken.index(decision)] if each.after_iteration == record.iteration]
    before = decisions.in_force(record, earlier).reward
    number = 1 + sum(each.kind == "reward" for each in earlier)
    here = place.at(iteration=record.iteration, section=f"retrain-{number:02d}")
    candidate = versions.assign(here, checkpoints.ref_at(here.folder("reward"), "reward"))
    training = tables.ref_at(here.folder("reward_training"))
    write_retraining(here, before, candidate, decision.reward, training, decision.why)
