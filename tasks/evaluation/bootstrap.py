"""Paired bootstrap intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Interval:
    """Mean of the differences and the ends of its percentile interval."""

    mean: float
    low: float
    high: float


def paired_bootstrap(differences: Sequence[float], *, confidence: float, num_resamples: int, seed: int) -> Interval:
    """Percentile bootstrap of the mean difference, resampling pairs (prompts) with replacement.

    Args:
        differences: [P] candidate minus champion, one per prompt.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    if not differences:
        raise ValueError("no prompt was measured under both policies: there is nothing to compare")
    values_P = np.asarray(differences, dtype=np.float64)
    rng = np.random.default_rng(seed)
    picks_RP = rng.integers(0, len(values_P), size=(num_resamples, len(values_P)))
    means_R = values_P[picks_RP].mean(axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means_R, [tail, 1.0 - tail])
    return Interval(float(values_P.mean()), float(low), float(high))
