"""The advantage estimators by their settings: from scored completions to advantages."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tasks.grpo.advantages import (
    by_group,
    centre,
    centre_and_scale,
    gae,
    have_signal,
    leave_one_out,
    step_sums,
    sums_from,
)
from tasks.grpo.components import (
    STD_EPS,
    BatchAdvantages,
    CorrectOnlyAdvantages,
    GaeAdvantages,
    GroupAdvantages,
    LeaveOneOutAdvantages,
    ProcessAdvantages,
)


@dataclass(frozen=True)
class Episode:
    """One completion that takes part, as an estimator sees it. T = its tokens, K = its steps."""

    group_id: str
    num_tokens: int
    reward: float
    is_correct: bool | None = None
    sources: Mapping[str, float | None] = field(default_factory=dict)
    """The reward of each source that counts; None where it does not apply."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight of each of ``sources``."""
    step_rewards: Sequence[float] = ()
    step_ends: Sequence[int] = ()
    penalties: Sequence[float] | None = None
    """[T] beta times the KL estimate of each token; None without a KL in the reward."""
    values: Sequence[float] | None = None
    """[T] the critic's value of the state before each token."""

    @property
    def penalised_reward(self) -> float:
        """The reward minus the whole completion's KL penalty."""
        return self.reward - math.fsum(self.penalties or ())

    def token_rewards(self, reward: float) -> list[float]:
        """[T] minus each token's KL penalty, and ``reward`` at the last token."""
        rewards = [-penalty for penalty in self.penalties] if self.penalties is not None else [0.0] * self.num_tokens
        rewards[-1] += reward
        return rewards


@dataclass(frozen=True)
class Advantage:
    """``outcome`` for every token of a completion, or ``by_token`` [T] (then ``outcome`` is None).

    ``returns`` [T] are what the critic should have predicted; None without a critic.
    """

    outcome: float | None
    has_signal: bool
    by_token: list[float] | None = None
    returns: list[float] | None = None


def group(episodes: Sequence[Episode], config: GroupAdvantages) -> list[Advantage]:
    """Each reward against its group: centred, and divided by the group's standard deviation unless scale is "none".

    Under ``normalise = "each_source"`` every source is centred and scaled by itself and its weight is applied after
    that, so that the scale of one can not decide the sign; a source that does not differ in a group adds exactly 0.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.2; "none": Dr. GRPO, arXiv:2503.20783; each source: GDPO,
    arXiv:2601.05242.
    """
    if config.normalise == "each_source":
        return _each_source(episodes, config)
    found = by_group(
        [episode.penalised_reward for episode in episodes],
        [episode.group_id for episode in episodes],
        lambda values: _scaled(values, config),
    )
    return _outcomes(found.advantages, found.has_signal)


def _scaled(values: Sequence[float], config: GroupAdvantages) -> list[float]:
    return centre(values) if config.scale == "none" else centre_and_scale(values, config.std_eps, config.ddof)


def _each_source(episodes: Sequence[Episode], config: GroupAdvantages) -> list[Advantage]:
    names = sorted({name for episode in episodes for name in episode.sources})
    totals = [0.0] * len(episodes)
    signal = [False] * len(episodes)
    for name in names:
        indices = [index for index, episode in enumerate(episodes) if episode.sources.get(name) is not None]
        rewards = [episodes[index].sources[name] for index in indices]
        found = by_group(
            rewards,  # type: ignore[arg-type]  # None was left out above
            [episodes[index].group_id for index in indices],
            lambda values: _scaled(values, config),
        )
        for index, advantage, has_signal in zip(indices, found.advantages, found.has_signal, strict=True):
            # After the scaling: dividing by the standard deviation would take a weight out again.
            totals[index] += episodes[index].weights[name] * advantage
            signal[index] = signal[index] or has_signal
    return _outcomes(totals, signal)


def _outcomes(advantages: Sequence[float], has_signal: Sequence[bool]) -> list[Advantage]:
    return [Advantage(advantage, signal) for advantage, signal in zip(advantages, has_signal, strict=True)]


def process(episodes: Sequence[Episode], config: ProcessAdvantages) -> list[Advantage]:
    """Step rewards normalised over all steps of all completions of the group; a token has the sum of those of the steps
    that end at or after it.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.3.
    """
    steps = by_group(
        [reward for episode in episodes for reward in episode.step_rewards],
        [episode.group_id for episode in episodes for _ in episode.step_rewards],
        lambda values: centre_and_scale(values, config.std_eps, config.ddof),
    )
    normalised = iter(zip(steps.advantages, steps.has_signal, strict=True))
    found = []
    for episode in episodes:
        own = [next(normalised) for _ in episode.step_rewards]
        by_token = step_sums([reward for reward, _ in own], episode.step_ends, episode.num_tokens)
        found.append(Advantage(None, any(has_signal for _, has_signal in own), by_token))
    return found


def leave_one_out_of_group(episodes: Sequence[Episode], config: LeaveOneOutAdvantages) -> list[Advantage]:
    """The reward (minus the KL penalty of the whole completion) against the mean of the group's others.

    Source: RLOO, arXiv:2402.14740, section 3.3.
    """
    del config  # no knobs
    found = by_group(
        [episode.penalised_reward for episode in episodes], [episode.group_id for episode in episodes], leave_one_out
    )
    return _outcomes(found.advantages, found.has_signal)


def batch(episodes: Sequence[Episode], config: BatchAdvantages) -> list[Advantage]:
    """The return to go of each token (reward minus the KL penalties from it on), normalised over all tokens.

    With ``baseline = "group_mean"`` the mean reward of the group is subtracted first.

    Source: REINFORCE++, arXiv:2501.03262 (v9), section 3, eq. 8 to 10 and the variant with a baseline.
    """
    rewards = [episode.reward for episode in episodes]
    if config.baseline == "group_mean":
        rewards = by_group(rewards, [episode.group_id for episode in episodes], centre).advantages
    returns = [sums_from(episode.token_rewards(reward)) for episode, reward in zip(episodes, rewards, strict=True)]
    has_signal, normalised = _over_tokens(returns, config.std_eps, config.ddof)
    return [Advantage(None, has_signal, advantages) for advantages in normalised]


def _over_tokens(rows: Sequence[Sequence[float]], std_eps: float, ddof: int) -> tuple[bool, list[list[float]]]:
    """Centre and scale ragged rows over all their tokens together."""
    pooled = list(chain.from_iterable(rows))
    scaled = iter(centre_and_scale(pooled, std_eps, ddof))
    return have_signal(pooled), [[next(scaled) for _ in row] for row in rows]


def generalised(episodes: Sequence[Episode], config: GaeAdvantages) -> list[Advantage]:
    """Generalised advantages with the critic's values, and the returns A + V that the critic learns.

    The reward comes at the last token, the KL penalty at each. The returns are those before normalisation.

    Errors: ValueError for a completion without values.
    Source: GAE, arXiv:1506.02438, eq. 16; rewards as in InstructGPT, arXiv:2203.02155, section 3.5.
    """
    raw = []
    for episode in episodes:
        if episode.values is None:
            raise ValueError(f"a completion of group {episode.group_id!r} has no values; gae needs a critic")
        raw.append(gae(episode.token_rewards(episode.reward), episode.values, config.gamma, config.gae_lambda))
    returns = [
        [advantage + value for advantage, value in zip(row, episode.values or (), strict=True)]
        for row, episode in zip(raw, episodes, strict=True)
    ]
    has_signal, advantages = True, raw
    if config.normalise == "batch":
        has_signal, advantages = _over_tokens(raw, STD_EPS, 1)
    return [Advantage(None, has_signal, row, to_go) for row, to_go in zip(advantages, returns, strict=True)]


def correct_only(episodes: Sequence[Episode], config: CorrectOnlyAdvantages) -> list[Advantage]:
    """1 for a correct completion, 0 for a wrong one or one whose correctness is not known.

    Source: DeepSeekMath, arXiv:2402.03300, appendix A.1.2 and A.1.3 (gradient coefficients of RFT and Online RFT).
    """
    del config  # no knobs
    return [Advantage(1.0 if episode.is_correct else 0.0, bool(episode.is_correct)) for episode in episodes]


ESTIMATORS: dict[type, Callable[[Sequence[Episode], Any], list[Advantage]]] = {
    GroupAdvantages: group,
    ProcessAdvantages: process,
    LeaveOneOutAdvantages: leave_one_out_of_group,
    BatchAdvantages: batch,
    GaeAdvantages: generalised,
    CorrectOnlyAdvantages: correct_only,
}
