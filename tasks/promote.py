"""Decide whether the new policy becomes the champion."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.evaluation.config import PromotionConfig
from tasks.evaluation.gate import decide


class Champion(Frozen):
    """The champion after an iteration, its evaluation, and the evidence of the decision."""

    policy: ModelRef
    evaluation: DatasetRef
    is_new: bool
    reason: str
    metrics: dict[str, float]


@task(cache_policy=NO_CACHE)
def promote(
    place: Place, policy: ModelRef, evaluation: DatasetRef, last: IterationRecord, config: PromotionConfig, seed: int
) -> Champion:
    """The candidate when the paired bootstrap says that it is not worse than the champion, else the champion.

    Nothing is committed here: the decision is a pure function of two committed tables and the seed, and the iteration's
    record keeps it.
    """
    champion_evaluation = last.tables["champion_evaluation"]
    decision = decide(
        {row["prompt_id"]: row["pass_at_1"] for row in tables.read(evaluation)},
        {row["prompt_id"]: row["pass_at_1"] for row in tables.read(champion_evaluation)},
        config,
        seed=seed,
    )
    return Champion(
        policy=policy if decision.promote else last.champion,
        evaluation=evaluation if decision.promote else champion_evaluation,
        is_new=decision.promote,
        reason=decision.reason,
        metrics={
            "promotion_difference": decision.difference,
            "promotion_low": decision.low,
            "promotion_high": decision.high,
        },
    )
