"""Decide whether the retrained reward model takes the place of the last good one."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints
from storage.iterations import IterationRecord
from storage.refs import Frozen, ModelRef
from tasks.reward.anchor import verdict_of
from tasks.reward.config import AnchorConfig


class RewardChoice(Frozen):
    """The reward model that the loop goes on with, and why."""

    reward_model: ModelRef
    is_refused: bool
    reason: str


@task(cache_policy=NO_CACHE)
def promote_reward(candidate: ModelRef, last: IterationRecord, config: AnchorConfig) -> RewardChoice:
    """The candidate, unless it lost more than the margin on the anchor set: then the last good reward model.

    Nothing is committed here: the comparison was committed with the candidate, and the iteration's record keeps it.
    """
    is_refused, reason = verdict_of(checkpoints.metrics_of(candidate), config)
    return RewardChoice(
        reward_model=last.reward if is_refused else candidate,
        is_refused=is_refused,
        reason=reason,
    )
