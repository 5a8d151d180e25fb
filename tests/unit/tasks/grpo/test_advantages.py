"""Group-relative advantages against hand-worked values."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grpo.advantages import SCALES, group_advantages


def advantages(rewards, groups=None, scale="std", std_eps=1e-4):
    groups = groups or ["g"] * len(rewards)
    return group_advantages(rewards, groups, scale=scale, std_eps=std_eps)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 0, 0, 0], [1.499700, -0.499900, -0.499900, -0.499900]),
        ([1, 1, 0, 0], [0.865875, 0.865875, -0.865875, -0.865875]),
    ],
)
def test_std_scaling_uses_the_sample_standard_deviation(rewards, expected):
    assert advantages(rewards).advantages == pytest.approx(expected, abs=1e-6)


def test_without_scaling_the_advantage_is_the_distance_from_the_mean():
    assert advantages([1, 0, 0, 0], scale="none").advantages == [0.75, -0.25, -0.25, -0.25]
    assert advantages([1, 1, 0, 0], scale="none").advantages == [0.5, 0.5, -0.5, -0.5]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("value", [0.35, 0.1, 1e9 / 3, -7.7, 0.0])
@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_equal_rewards_give_exactly_zero_and_no_signal(scale, value, size):
    found = advantages([value] * size, scale=scale)
    assert found.advantages == [0.0] * size
    assert found.has_signal == [False] * size
    assert found.is_scored == [True] * size


def test_rewards_that_differ_only_by_float32_rounding_have_no_signal():
    nearly = [0.35, 0.35 + 3e-9, 0.35 - 3e-9]
    assert advantages(nearly).advantages == [0.0, 0.0, 0.0]
    assert advantages([0.35, 0.35 + 1e-6]).has_signal == [True, True]


def test_the_tolerance_grows_with_the_size_of_the_rewards():
    assert advantages([1e6, 1e6 + 1e-3]).has_signal == [False, False]
    assert advantages([1e6, 1e6 + 1e-1]).has_signal == [True, True]


def test_groups_are_formed_by_id_and_not_by_position():
    found = advantages([1, 0, 1, 0], ["a", "b", "a", "b"], scale="none")
    assert found.advantages == [0, 0, 0, 0]


def test_two_groups_of_one_prompt_keep_statistics_of_their_own():
    found = advantages([1, 1, 0, 0], ["g1", "g1", "g2", "g2"])
    assert found.advantages == [0, 0, 0, 0]


@pytest.mark.parametrize("scale", SCALES)
def test_permuting_rows_permutes_advantages(scale):
    rng = random.Random(0)
    rewards = [rng.random() for _ in range(12)]
    groups = [f"g{index % 3}" for index in range(12)]
    base = advantages(rewards, groups, scale).advantages
    order = list(range(12))
    rng.shuffle(order)
    permuted = advantages([rewards[i] for i in order], [groups[i] for i in order], scale).advantages
    assert permuted == [base[i] for i in order]


def test_an_unscored_row_takes_no_part_in_its_group():
    found = advantages([1, 0, None, 1], scale="none")
    assert found.advantages == pytest.approx([1 / 3, -2 / 3, 0, 1 / 3])
    assert found.is_scored == [True, True, False, True]
    scaled = advantages([1, 0, None, 1]).advantages
    assert scaled == pytest.approx([0.577250, -1.154501, 0, 0.577250], abs=1e-6)


def test_a_single_scored_row_has_advantage_zero():
    assert advantages([None, 1.0, None]).advantages == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_refused_with_its_row(bad):
    with pytest.raises(ValueError, match="row 1"):
        advantages([0.0, bad])


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_advantages_of_a_group_sum_to_zero_and_keep_the_order_of_rewards(rewards):
    found = advantages(rewards).advantages
    assert sum(found) == pytest.approx(0, abs=1e-6)
    pairs = sorted(zip(rewards, found, strict=True))
    assert all(low[1] <= high[1] + 1e-12 for low, high in itertools.pairwise(pairs))
