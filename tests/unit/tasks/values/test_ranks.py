"""Ranks and what is made of them, by hand and by law."""

import itertools
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.values.ranks import auc, average_ranks, spearman

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # beside other work

PAIRS = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=20)


def columns(pairs):
    return [first for first, _ in pairs], [second for _, second in pairs]


@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        ([], []),
        ([7.0], [1.0]),
        ([0.3, 0.1, 0.2], [3.0, 1.0, 2.0]),
        ([5, 5, 1, 5], [3.0, 3.0, 1.0, 3.0]),
        ([0.0, -0.0], [1.5, 1.5]),
        ([True, False, True], [2.5, 1.0, 2.5]),
        ([math.inf, 0, -math.inf, math.inf], [3.5, 2.0, 1.0, 3.5]),
    ],
)
def test_equal_values_share_the_mean_of_their_places(values, ranks):
    assert average_ranks(values) == ranks


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        # ranks 1 2 3 4 5 against 2 1 4 3 5: 1 - 6 * 4 / (5 * 24)
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),
        # ranks 1 2.5 2.5 4 against 1 2 3 4: covariance 4.5, variances 4.5 and 5
        ([1, 2, 2, 3], [1, 2, 3, 4], math.sqrt(0.9)),
        # ranks 1 2 3 4 against 1.5 3.5 1.5 3.5: 2 / sqrt(5 * 4)
        ([0.1, 0.2, 0.3, 0.4], [False, True, False, True], 1 / math.sqrt(5)),
        ([1, 2, 3, 4], [1, 2, 2, 1], 0.0),
    ],
)
def test_the_rank_correlation_is_that_worked_by_hand(first, second, expected):
    assert spearman(first, second) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3]), ([1, 2], [0, 0])])
def test_a_score_that_does_not_differ_has_no_correlation_which_is_not_zero(first, second):
    assert spearman(first, second) is None


def test_lengths_that_differ_and_values_without_a_rank_are_refused():
    with pytest.raises(ValueError, match="2 and 1 values do not match"):
        spearman([1, 2], [1])
    with pytest.raises(ValueError, match="1 of 2 values are NaN"):
        spearman([1, math.nan], [1, 2])
    with pytest.raises(ValueError, match="NaN"):
        auc([math.nan], [1.0])


@UNHURRIED
@given(PAIRS, st.randoms())
def test_the_order_of_the_rows_changes_no_bit(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    assert spearman(*columns(pairs)) == spearman(*columns(shuffled))


@UNHURRIED
@given(PAIRS)
def test_only_the_order_of_the_values_counts(pairs):
    first, second = columns(pairs)
    rho = spearman(first, second)
    assert spearman([math.exp(value) for value in first], second) == rho
    assert spearman([1 / (1 + math.exp(-value)) for value in first], [value**3 for value in second]) == rho
    turned = spearman([-value for value in first], second)
    assert turned == (None if rho is None else -rho)


@UNHURRIED
@given(PAIRS)
def test_it_is_the_correlation_of_the_ranks_within_its_bounds(pairs):
    first, second = columns(pairs)
    rho = spearman(first, second)
    x, y = average_ranks(first), average_ranks(second)
    n, mean = len(x), (len(x) + 1) / 2
    cov, var_x, var_y = (
        sum((a - mean) * (b - mean) for a, b in zip(p, q, strict=True)) / n for p, q in ((x, y), (x, x), (y, y))
    )
    if var_x * var_y == 0:
        assert rho is None
    else:
        assert -1.0 <= rho <= 1.0
        assert rho == pytest.approx(cov / math.sqrt(var_x * var_y), abs=1e-12)
        assert spearman(second, first) == rho
        assert spearman(first, first) == 1.0


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [
        ([0.9, 0.8], [0.1, 0.2], 1.0),
        ([0.1], [0.2, 0.3], 0.0),
        ([0.5], [0.5], 0.5),
        ([0.9, 0.4], [0.5, 0.4], 0.625),  # wins 1 + 1 + 0 + 1/2 of 4
        ([0.5], [], None),
        ([], [0.5], None),
    ],
)
def test_auc_counts_wins_and_half_of_the_ties(positive, negative, expected):
    assert auc(positive, negative) == expected


@UNHURRIED
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.lists(st.integers(-3, 3), min_size=1, max_size=8))
def test_auc_is_the_share_of_won_pairs(positive, negative):
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(positive, negative))
    assert auc(positive, negative) == pytest.approx(wins / (len(positive) * len(negative)), abs=1e-12)
