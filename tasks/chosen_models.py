"""Models of a lineage by their versions, for runs that measure or retrain what is there."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import decisions, iterations
from storage.errors import StorageError
from storage.iterations import IterationRecord
from storage.refs import Frozen, ModelRef, Place


class Chosen(Frozen):
    """The record that a policy came from, and the reward model to measure it with."""

    record: IterationRecord
    reward: ModelRef


@task(cache_policy=NO_CACHE)
def choose_models(place: Place, policy_version: int | None, reward_version: int | None) -> Chosen:
    """The policy and the reward model of these versions; None takes the newest that are in use.

    Raises:
        StorageError: no finished iteration, or no such version; names those that there are.
    """
    records = _records(place)
    by_policy = {int(record.policy.version): record for record in records}
    rewards = [ref for record in records for ref in (record.reward, record.refused_reward) if ref is not None]
    rewards += [each.reward for each in decisions.decisions(Path(place.root), place.lineage) if each.reward is not None]
    by_reward = {int(ref.version): ref for ref in rewards}
    last = records[-1]
    policy = int(last.policy.version) if policy_version is None else policy_version
    reward = int(last.reward.version) if reward_version is None else reward_version
    for role, version, known in (("policy", policy, by_policy), ("reward model", reward, by_reward)):
        if version not in known:
            listed = ", ".join(f"v{each}" for each in sorted(known))
            raise StorageError(f"lineage {place.lineage!r} has no {role} v{version}; there are: {listed}")
    return Chosen(record=by_policy[policy], reward=by_reward[reward])


@task(cache_policy=NO_CACHE)
def reward_that_scored(place: Place, iteration: int) -> ModelRef:
    """The reward model that scored an iteration: the one in use when it began; the first one for the bootstrap."""
    records = _records(place)
    return records[max(iteration - 1, 0)].reward


def _records(place: Place) -> list[IterationRecord]:
    root = Path(place.root)
    taken = decisions.decisions(root, place.lineage)
    records = [decisions.in_force(record, taken) for record in iterations.records(root, place.lineage)]
    if not records:
        raise StorageError(
            f"lineage {place.lineage!r} has no finished iteration yet; run the deployment `bootstrap` first"
        )
    return records
