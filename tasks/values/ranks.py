"""Ranks: how well one score orders things as another does."""

import math
from collections.abc import Sequence


def average_ranks(values: Sequence[float]) -> list[float]:
    """The rank of every value, the smallest 1; equal values share the mean of their places.

    Infinities have their places; a NaN has none.

    Raises:
        ValueError: a value is NaN.
    Source: Kendall, Rank Correlation Methods (1948), chapter 3.
    """
    return [doubled / 2 for doubled in _doubled_ranks(values)]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation in [-1, 1]: Pearson's correlation of the average ranks, None where one side does not differ.

        rho = cov(R(x), R(y)) / sqrt(var(R(x)) * var(R(y)))

    The sums are whole numbers (twice a rank is one), so that the order of the rows changes no bit of the result.

    Args:
        first, second: [B] two scores of the same things, in the same order.

    Raises:
        ValueError: the lengths differ, or a value is NaN.
    Source: Spearman (1904); ties: Kendall (1948), chapter 3.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values do not match: a correlation is over pairs")
    x, y = _doubled_ranks(first), _doubled_ranks(second)
    covariance, spread = _cross(x, y), _cross(x, x) * _cross(y, y)
    if spread == 0:
        return None
    return math.copysign(math.sqrt(covariance * covariance / spread), covariance)


def auc(positive: Sequence[float], negative: Sequence[float]) -> float | None:
    """The chance that a positive scores above a negative, ties counting half; None without one of both.

        AUC = (rank sum of the positives - n (n + 1) / 2) / (n m)

    Raises:
        ValueError: a value is NaN.
    Source: Mann and Whitney (1947); Hanley and McNeil (1982).
    """
    doubled = _doubled_ranks([*positive, *negative])
    n, m = len(positive), len(negative)
    if not n or not m:
        return None
    return (sum(doubled[:n]) - n * (n + 1)) / (2 * n * m)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the average rank: the first and last place of each run of equals, added."""
    if bad := sum(math.isnan(value) for value in values):
        raise ValueError(f"{bad} of {len(values)} values are NaN and have no rank")
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for index in order[begin:end]:
            ranks[index] = begin + 1 + end
        begin = end
    return ranks


def _cross(x: Sequence[int], y: Sequence[int]) -> int:
    """n times the sum of products less the product of sums: n^2 times the covariance, exact."""
    return len(x) * sum(a * b for a, b in zip(x, y, strict=True)) - sum(x) * sum(y)
