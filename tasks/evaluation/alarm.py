"""The over-optimisation alarm: the reward model likes the policy better and better while it gets worse."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.evaluation.config import AlarmConfig

NOISE = 1e-9
"""A change of no more than this is binary noise, neither a rise nor a fall."""

CURE = (
    "read what it rewards (igrpo show .../evaluation/rewards --disagree); then start another lineage from that policy "
    "(policy.kind local) with a larger update.kl.beta, a smaller scoring.reward_model_weight, or more labels"
)


@dataclass(frozen=True)
class Point:
    """One iteration: held-out accuracy by the verifier, and the reward model's mean over the same completions."""

    iteration: int
    accuracy: float | None
    reward_model_mean: float | None


@dataclass(frozen=True)
class Judgement:
    """The state of the alarm after the last iteration."""

    best_iteration: int | None
    """With the highest accuracy so far, the earliest of equals; None when no accuracy is known."""
    num_diverging: int
    """Iterations in a row, up to the last, in which accuracy fell and the reward model's mean rose."""
    raised_at: int | None
    """The iteration that raised the alarm which stands now, None when none stands."""
    num_left_out: int
    """Iterations that lack one of the two numbers; the others are compared as if these were not there."""
    evidence: str
    """The numbers behind the alarm, what is offered, and the cure; "" when none stands."""


def judge(points: Sequence[Point], config: AlarmConfig) -> Judgement:
    """The alarm after the last of ``points``, which are in the order of their iterations.

    With a_i the accuracy and m_i the reward model's mean of the iterations that have both, and N the patience, it is
    raised at t when

        a_j < a_(j-1)  and  m_j > m_(j-1)      for j = t - N + 1, ..., t

    and stands until an accuracy rises (a_t > a_(t-1)).

    Source: the rule and its example: rllm-org/rllm issue 143, huggingface/open-r1 issue 407; the phenomenon: Gao et al.,
        arXiv:2210.10760.
    """
    known = [point for point in points if point.accuracy is not None and point.reward_model_mean is not None]
    num_diverging, raised_at = 0, None
    for before, now in itertools.pairwise(known):
        rise = _change(before.accuracy, now.accuracy)
        diverges = rise < -NOISE and _change(before.reward_model_mean, now.reward_model_mean) > NOISE
        num_diverging = num_diverging + 1 if diverges else 0
        if rise > NOISE:
            raised_at = None
        if raised_at is None and num_diverging >= config.patience:
            raised_at = now.iteration
    best = best_of(points)
    return Judgement(
        best_iteration=None if best is None else best.iteration,
        num_diverging=num_diverging,
        raised_at=raised_at,
        num_left_out=len(points) - len(known),
        evidence="" if raised_at is None or best is None else _evidence(known, raised_at, config.patience, best),
    )


def best_of(points: Sequence[Point]) -> Point | None:
    """The iteration with the highest accuracy, the earliest of equals; None when no accuracy is known."""
    best: Point | None = None
    for point in points:
        if point.accuracy is not None and (best is None or _change(best.accuracy, point.accuracy) > NOISE):
            best = point
    return best


def _change(before: float | None, now: float | None) -> float:
    assert before is not None  # left out above
    assert now is not None
    return now - before


def _evidence(known: Sequence[Point], raised_at: int, patience: int, best: Point) -> str:
    last = next(index for index, point in enumerate(known) if point.iteration == raised_at)
    shown = known[last - patience : last + 1]
    accuracy = " > ".join(f"{point.accuracy:.3f}" for point in shown)
    model = " < ".join(f"{point.reward_model_mean:.3f}" for point in shown)
    return (
        f"over-optimisation, raised at iteration {raised_at}: from iteration {shown[0].iteration} on held-out accuracy fell "
        f"({accuracy}) while the reward model's mean rose ({model}); the policy of iteration {best.iteration} "
        f"(accuracy {best.accuracy:.3f}) is offered as champion until accuracy rises again. Cure: {CURE}"
    )
