"""Advantage formulas on plain numbers, in float64."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NO_SIGNAL_TOLERANCE = 1e-8
"""Values that span at most this times max(1, largest magnitude) have no signal: what is left is rounding."""


def have_signal(values: Sequence[float]) -> bool:
    """Whether the values differ by more than rounding; a single value, or none, does not.

    max - min > NO_SIGNAL_TOLERANCE * max(1, largest magnitude)
    """
    if len(values) < 2:
        return False
    return max(values) - min(values) > NO_SIGNAL_TOLERANCE * max(1.0, *(abs(value) for value in values))


def centre(values: Sequence[float]) -> list[float]:
    """A_i = r_i - mean(r).

    Source: Dr. GRPO, arXiv:2503.20783, section 3.2, which argues that the division by the standard deviation favours
    questions that are too easy or too hard.
    """
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def centre_and_scale(values: Sequence[float], std_eps: float, ddof: int = 1) -> list[float]:
    """A_i = (r_i - mean(r)) / (std(r) + eps), std with ``ddof`` (1: sample, 0: population); 0 without signal.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.2; ddof 1 as in TRL and verl.
    """
    if not have_signal(values):
        return [0.0] * len(values)
    centred = centre(values)
    std = math.sqrt(math.fsum(value * value for value in centred) / (len(values) - ddof))
    return [value / (std + std_eps) for value in centred]


def leave_one_out(values: Sequence[float]) -> list[float]:
    """A_i = r_i - (1 / (G - 1)) * sum over j != i of r_j = (G / (G - 1)) * (r_i - mean(r)).

    Errors: ValueError for a single value, which has no others.
    Source: RLOO, arXiv:2402.14740, section 3.3; Kool, van Hoof and Welling (2019), "Buy 4 REINFORCE samples".
    """
    if len(values) < 2:
        raise ValueError(f"a group of {len(values)} has no other completions to be the baseline; take at least 2")
    share = len(values) / (len(values) - 1)
    return [share * value for value in centre(values)]


def sums_from(values: Sequence[float], discount: float = 1.0) -> list[float]:
    """S_t = v_t + discount * S_(t+1): the (discounted) sum from each position on."""
    found = 0.0
    sums = []
    for value in reversed(values):
        found = value + discount * found
        sums.append(found)
    return sums[::-1]


def step_sums(step_rewards: Sequence[float], step_ends: Sequence[int], num_tokens: int) -> list[float]:
    """A_t = the sum of the rewards of the steps that end at token t or later.

    Args:
        step_rewards: [K] (normalised) reward of each step.
        step_ends: [K] index of each step's last token, strictly increasing, in [0, num_tokens).
        num_tokens: of the completion.

    Returns:
        [num_tokens]; tokens after the last step have 0.

    Errors: ValueError for ends that are out of order or of range, or not one per reward.
    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.3.
    """
    if len(step_rewards) != len(step_ends):
        raise ValueError(f"{len(step_rewards)} step rewards for {len(step_ends)} step ends")
    at_token = [0.0] * num_tokens
    last = -1
    for reward, end in zip(step_rewards, step_ends, strict=True):
        if not last < end < num_tokens:
            raise ValueError(f"step ends {list(step_ends)} must increase within a completion of {num_tokens} tokens")
        at_token[end] = reward
        last = end
    return sums_from(at_token)


def gae(rewards: Sequence[float], values: Sequence[float], gamma: float, gae_lambda: float) -> list[float]:
    """A_t = delta_t + gamma * lambda * A_(t+1),   delta_t = r_t + gamma * V_(t+1) - V_t,   V after the last token = 0.

    Args:
        rewards: [T] reward of each token.
        values: [T] value of the state before each token.

    Errors: ValueError when the lengths differ.
    Source: GAE, arXiv:1506.02438, eq. 11 to 16.
    """
    if len(rewards) != len(values):
        raise ValueError(f"{len(rewards)} token rewards for {len(values)} values")
    following = [*values[1:], 0.0]
    deltas = [reward + gamma * after - value for reward, value, after in zip(rewards, values, following, strict=True)]
    return sums_from(deltas, gamma * gae_lambda)


@dataclass(frozen=True)
class GroupAdvantages:
    """Per completion, in the order given: advantage (float64), and whether its group has signal."""

    advantages: list[float]
    has_signal: list[bool]


def by_group(
    rewards: Sequence[float], group_ids: Sequence[str], within: Callable[[Sequence[float]], list[float]]
) -> GroupAdvantages:
    """``within`` applied to each group's rewards.

    Groups are formed by ``group_ids`` alone: rows may stand in any order, and one prompt may form several groups. A group
    whose rewards do not differ (``have_signal``) has advantage exactly 0.

    Args:
        rewards: [B]; NaN and infinities are refused.
        group_ids: [B].
        within: from a group's rewards [G] to its advantages [G].
    """
    if len(rewards) != len(group_ids):
        raise ValueError(f"{len(rewards)} rewards for {len(group_ids)} group ids")
    members: dict[str, list[int]] = defaultdict(list)
    for index, (reward, group) in enumerate(zip(rewards, group_ids, strict=True)):
        if not math.isfinite(reward):
            raise ValueError(f"reward {reward} of row {index} (group {group!r}) is not finite")
        members[group].append(index)
    advantages = [0.0] * len(rewards)
    signal = [False] * len(rewards)
    for indices in members.values():
        values = [float(rewards[index]) for index in indices]
        if have_signal(values):
            for index, advantage in zip(indices, within(values), strict=True):
                advantages[index] = advantage
                signal[index] = True
    return GroupAdvantages(advantages, signal)
