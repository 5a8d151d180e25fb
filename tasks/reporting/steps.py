"""The steps of an iteration in numbers: rounds added up, shares of sums."""

import math
import re
from collections.abc import Mapping, Sequence

Metrics = Mapping[str, float]
Stages = Mapping[str, Mapping[str, Metrics]]
"""Section -> stage -> what it measured."""
Measured = dict[str, float | None]

_STEP = re.compile(r"step-(\d{3})(-round-\d{2})?")


def step_rows(stages: Stages) -> list[Measured]:
    """One row of numbers per step, in order (see ``summed``), with its ``step`` number."""
    sections: dict[int, list[str]] = {}
    for name in sorted(stages):
        if match := _STEP.fullmatch(name):
            sections.setdefault(int(match[1]), []).append(name)
    return [
        {"step": float(number), **summed([stages[name] for name in names])}
        for number, names in sorted(sections.items())
    ]


def iteration_row(stages: Stages) -> Measured:
    """The same numbers over all steps of the iteration."""
    return summed([stages[name] for name in sorted(stages) if _STEP.fullmatch(name)])


def summed(sections: Sequence[Mapping[str, Metrics]]) -> Measured:
    """Numbers over sections, each weighted by what it is a mean over; None where nothing was measured.

    reward_mean: over rows with a reward; accuracy, reward_model_mean: over rows; kl, entropy (nats): over trained tokens;
    mean_tokens, truncated_share: over completions; no_signal_share: over groups; unscored_share: over rows; grad_norm: over
    updates.
    """
    rewarded = [("rewards", "num_rows", 1.0), ("rewards", "num_without_reward", -1.0)]
    rows = [("rewards", "num_rows", 1.0)]
    trained = [("policy", "num_trained_tokens", 1.0)]
    completions = [("completions", "num_completions", 1.0)]
    kl = _mean(sections, "policy", "kl", trained)
    return {
        "reward_mean": _mean(sections, "rewards", "reward_mean", rewarded),
        "accuracy": _mean(sections, "rewards", "accuracy", rows),
        "reward_model_mean": _mean(sections, "rewards", "reward_model_mean", rows),
        "kl": kl if kl is not None else _mean(sections, "samples", "kl", [("samples", "num_samples", 1.0)]),
        "entropy": _mean(sections, "policy", "entropy", trained),
        "mean_tokens": _mean(sections, "completions", "mean_completion_tokens", completions),
        "truncated_share": _share(sections, ("completions", "num_truncated"), ("completions", "num_completions")),
        "unscored_share": _share(sections, ("rewards", "num_without_reward"), ("rewards", "num_rows")),
        "grad_norm": _mean(sections, "policy", "grad_norm", [("policy", "num_updates", 1.0)]),
        "no_signal_share": _share(sections, ("samples", "num_no_signal_groups"), ("samples", "num_groups")),
    }


def _mean(
    sections: Sequence[Mapping[str, Metrics]], stage: str, name: str, weights: Sequence[tuple[str, str, float]]
) -> float | None:
    """The mean of a stage's number over the sections that have it, weighted by a signed sum of counts."""
    having = [section for section in sections if name in section.get(stage, {})]
    shares = [
        math.fsum(sign * section.get(of, {}).get(count, 0.0) for of, count, sign in weights) for section in having
    ]
    total = math.fsum(shares)
    if total <= 0:
        return None
    return math.fsum(section[stage][name] * share for section, share in zip(having, shares, strict=True)) / total


def _share(sections: Sequence[Mapping[str, Metrics]], part: tuple[str, str], whole: tuple[str, str]) -> float | None:
    total = _sum(sections, whole)
    return _sum(sections, part) / total if total > 0 else None


def _sum(sections: Sequence[Mapping[str, Metrics]], name: tuple[str, str]) -> float:
    stage, count = name
    return math.fsum(section.get(stage, {}).get(count, 0.0) for section in sections)
