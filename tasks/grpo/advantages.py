"""Group-relative advantages."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NO_SIGNAL_TOLERANCE = 1e-8
"""A group whose rewards span at most this times max(1, largest magnitude) has no signal: what is left is rounding."""


@dataclass(frozen=True)
class GroupAdvantages:
    """Per completion, in the order given: advantage (float64), whether it takes part, whether its group has signal."""

    advantages: list[float]
    is_scored: list[bool]
    has_signal: list[bool]


def centre_and_scale(rewards: Sequence[float], std_eps: float) -> list[float]:
    """A_i = (r_i - mean) / (std + eps), std with ddof 1 over the group.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.2; ddof 1 as in TRL and verl.
    """
    centred = centre(rewards)
    std = math.sqrt(math.fsum(value * value for value in centred) / (len(rewards) - 1))
    return [value / (std + std_eps) for value in centred]


def centre(rewards: Sequence[float], std_eps: float = 0.0) -> list[float]:
    """A_i = r_i - mean of the group.

    ``std_eps`` has no part in it; it stands in the signature of every scale.

    Source: Dr. GRPO, arXiv:2503.20783, which argues that the division favours questions that are too easy or too hard.
    """
    del std_eps
    mean = math.fsum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


SCALES: dict[str, Callable[[Sequence[float], float], list[float]]] = {
    "std": centre_and_scale,
    "none": centre,
}


def group_advantages(
    rewards: Sequence[float | None], group_ids: Sequence[str], *, scale: str, std_eps: float
) -> GroupAdvantages:
    """Advantages within each group, in float64.

    Groups are formed by ``group_ids`` alone: rows may stand in any order, and one prompt may form several groups. A
    reward of None takes no part: it neither moves its group's statistics nor gets an advantage. A group whose rewards
    do not differ (``NO_SIGNAL_TOLERANCE``), or that has fewer than two of them, has advantage exactly 0.

    Args:
        rewards: [B] float or None; NaN and infinities are refused.
        group_ids: [B].
        scale: a key of ``SCALES``.
        std_eps: added to the standard deviation.
    """
    if len(rewards) != len(group_ids):
        raise ValueError(f"{len(rewards)} rewards for {len(group_ids)} group ids")
    members: dict[str, list[int]] = defaultdict(list)
    for index, (reward, group) in enumerate(zip(rewards, group_ids, strict=True)):
        if reward is not None:
            if not math.isfinite(reward):
                raise ValueError(f"reward {reward} of row {index} (group {group!r}) is not finite; None means unscored")
            members[group].append(index)
    advantages = [0.0] * len(rewards)
    has_signal = [False] * len(rewards)
    for indices in members.values():
        values = [float(rewards[index]) for index in indices]  # type: ignore[arg-type]  # None was left out above
        if not _differ(values):
            continue
        for index, advantage in zip(indices, SCALES[scale](values, std_eps), strict=True):
            advantages[index] = advantage
            has_signal[index] = True
    return GroupAdvantages(advantages, [reward is not None for reward in rewards], has_signal)


def _differ(values: Sequence[float]) -> bool:
    span = max(values) - min(values)
    return len(values) > 1 and span > NO_SIGNAL_TOLERANCE * max(1.0, *(abs(value) for value in values))
