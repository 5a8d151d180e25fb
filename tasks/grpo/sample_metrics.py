"""Counts and means of a samples table, and of the rounds that a step drew."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.grpo.config import UpdateConfig

Row = Mapping[str, Any]


def metrics_of(rows: Sequence[Row], dropped: set[str], config: UpdateConfig) -> dict[str, float]:
    """Of one samples table; ``dropped`` are the groups that dynamic sampling took out."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    usable = {
        group: members
        for group, members in groups.items()
        if group in dropped or any(not row["is_masked"] for row in members)
    }
    no_signal = [
        group
        for group, members in usable.items()
        if group in dropped or not any(row["has_signal"] and not row["is_masked"] for row in members)
    ]
    metrics = {
        "num_samples": float(len(rows)),
        "num_masked": float(sum(row["is_masked"] for row in rows)),
        "num_groups": float(len(groups)),
        "num_signal_groups": float(len(usable) - len(no_signal)),
        "num_no_signal_groups": float(len(no_signal)),
        "num_unusable_groups": float(len(groups) - len(usable)),
    }
    scored = [row["reward"] for row in rows if row["reward"] is not None and not row["is_masked"]]
    metrics |= _mean("reward_mean", scored)
    if config.overlong.kind == "soft":
        penalties = [row["overlong_penalty"] for row in rows if row["reward"] is not None]
        metrics["num_overlong"] = float(sum(penalty < 0 for penalty in penalties))
        metrics |= _mean("overlong_penalty_mean", penalties)
    if config.kl.placement == "reward":
        penalties = [penalty for row in rows for penalty in row["penalties"] or () if not row["is_masked"]]
        metrics |= _mean("kl", [penalty / config.kl.beta for penalty in penalties])
    return metrics


def of_rounds(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Counts summed over a step's rounds; means weighted by the samples that took part.

    ``num_replaced_groups``: groups drawn in place of ones without signal. ``num_unfilled_groups``: places that stayed
    without a group with signal after the last round.
    """
    total: dict[str, float] = {}
    taking_part = [metrics["num_samples"] - metrics["num_masked"] for metrics in rounds]
    for name in {name for metrics in rounds for name in metrics}:
        having = [
            (metrics[name], weight) for metrics, weight in zip(rounds, taking_part, strict=True) if name in metrics
        ]
        if name.startswith("num_"):
            total[name] = math.fsum(value for value, _ in having)
        elif weight := math.fsum(weight for _, weight in having):
            total[name] = math.fsum(value * share for value, share in having) / weight
    total["num_replaced_groups"] = math.fsum(metrics["num_groups"] for metrics in rounds[1:])
    total["num_unfilled_groups"] = rounds[0]["num_groups"] - total["num_signal_groups"]
    return total


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    """Missing for no values: a mean of nothing is not NaN."""
    return {name: math.fsum(values) / len(values)} if values else {}
