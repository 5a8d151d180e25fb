"""Decide whether the new policy becomes the champion, and whether the reward model is being over-optimised."""

import logging
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import iterations, tables
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.evaluation.alarm import Judgement, Point, judge
from tasks.evaluation.config import AlarmConfig, PromotionConfig
from tasks.evaluation.gate import decide

log = logging.getLogger(__name__)


class Champion(Frozen):
    """The champion after an iteration, its evaluation, and the evidence of the decision."""

    policy: ModelRef
    evaluation: DatasetRef
    is_new: bool
    reason: str
    metrics: dict[str, float]
    alarm: str = ""
    """What the over-optimisation alarm says while it stands, else ""."""
    best_iteration: int | None = None


@task(cache_policy=NO_CACHE)
def promote(
    place: Place,
    policy: ModelRef,
    evaluation: DatasetRef,
    last: IterationRecord,
    config: PromotionConfig,
    alarm: AlarmConfig,
    seed: int,
) -> Champion:
    """The candidate when the paired bootstrap says that it is not worse than the champion, else the champion; while the
    over-optimisation alarm stands, the policy of the best iteration.

    Nothing is committed here: the decision is a pure function of committed tables and records and the seed, and the
    iteration's record keeps it.
    """
    champion_evaluation = last.tables["champion_evaluation"]
    decision = decide(
        {row["prompt_id"]: row["pass_at_1"] for row in tables.read(evaluation)},
        {row["prompt_id"]: row["pass_at_1"] for row in tables.read(champion_evaluation)},
        config,
        seed=seed,
    )
    earlier = [each for each in iterations.records(Path(place.root), place.lineage) if each.iteration < place.iteration]
    measured = [_point(record.iteration, record.metrics, "evaluation/") for record in earlier]
    judgement = judge([*measured, _point(place.iteration, tables.metrics_of(evaluation), "")], alarm)
    champion = Champion(
        policy=policy if decision.promote else last.champion,
        evaluation=evaluation if decision.promote else champion_evaluation,
        is_new=decision.promote,
        reason=decision.reason,
        metrics={
            "promotion_difference": decision.difference,
            "promotion_low": decision.low,
            "promotion_high": decision.high,
        },
        best_iteration=judgement.best_iteration,
    )
    return champion if judgement.raised_at is None else _best(champion, judgement, earlier)


def _point(iteration: int, metrics: dict[str, float], prefix: str) -> Point:
    return Point(iteration, metrics.get(f"{prefix}accuracy"), metrics.get(f"{prefix}reward_model_mean"))


def _best(champion: Champion, judgement: Judgement, earlier: list[IterationRecord]) -> Champion:
    """The policy of the best iteration. It is an earlier one: accuracy fell when the alarm was raised, and did not rise since."""
    (best,) = [record for record in earlier if record.iteration == judgement.best_iteration]
    log.warning("%s", judgement.evidence)
    return champion.model_copy(
        update={
            "policy": best.policy,
            "evaluation": best.tables["evaluation"],
            "is_new": False,
            "reason": judgement.evidence,
            "alarm": judgement.evidence,
        }
    )
