"""Advantage formulas against hand-worked values."""

import itertools
import math
import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

WITHIN = {
    "std": partial(centre_and_scale, std_eps=1e-4),
    "population std": partial(centre_and_scale, std_eps=1e-4, ddof=0),
    "none": centre,
    "leave one out": leave_one_out,
}


def advantages(rewards, groups=None, within="std"):
    return by_group(rewards, groups or ["g"] * len(rewards), WITHIN[within])


@pytest.mark.parametrize(
    ("within", "rewards", "expected"),
    [
        ("std", [1, 0, 0, 0], [1.499700, -0.499900, -0.499900, -0.499900]),
        ("std", [1, 1, 0, 0], [0.865875, 0.865875, -0.865875, -0.865875]),
        ("population std", [1, 0, 0, 0], [1.731651, -0.577217, -0.577217, -0.577217]),
        ("population std", [1, 1, 0, 0], [0.999800, 0.999800, -0.999800, -0.999800]),
        ("none", [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("none", [1, 1, 0, 0], [0.5, 0.5, -0.5, -0.5]),
        ("leave one out", [1, 0, 0, 1], [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
        ("leave one out", [3, 0, 0], [3, -1.5, -1.5]),
    ],
)
def test_the_values_of_each_formula(within, rewards, expected):
    assert advantages(rewards, within=within).advantages == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("value", [0.35, 0.1, 1e9 / 3, -7.7, 0.0])
@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_equal_rewards_give_exactly_zero_and_no_signal(within, value, size):
    found = advantages([value] * size, within=within)
    assert found.advantages == [0.0] * size
    assert found.has_signal == [False] * size


def test_scaling_itself_gives_zero_where_only_rounding_differs():
    assert centre_and_scale([0.35, 0.35 + 3e-9, 0.35 - 3e-9], std_eps=0.0) == [0.0] * 3


def test_rewards_that_differ_only_by_float32_rounding_have_no_signal():
    assert not have_signal([0.35, 0.35 + 3e-9, 0.35 - 3e-9])
    assert have_signal([0.35, 0.35 + 1e-6])


def test_the_tolerance_grows_with_the_size_of_the_rewards():
    assert not have_signal([1e6, 1e6 + 1e-3])
    assert have_signal([1e6, 1e6 + 1e-1])
    assert not have_signal([-1e6, -1e6 - 1e-3])


def test_a_single_value_and_none_have_no_signal():
    assert not have_signal([])
    assert not have_signal([1.0])


def test_groups_are_formed_by_id_and_not_by_position():
    found = advantages([1, 0, 1, 0], ["a", "b", "a", "b"], "none")
    assert found.advantages == [0, 0, 0, 0]


def test_two_groups_of_one_prompt_keep_statistics_of_their_own():
    found = advantages([1, 1, 0, 0], ["g1", "g1", "g2", "g2"])
    assert found.advantages == [0, 0, 0, 0]


@pytest.mark.parametrize("within", WITHIN)
def test_permuting_rows_permutes_advantages_in_groups_of_any_size(within):
    rng = random.Random(0)
    rewards = [rng.random() for _ in range(12)]
    groups = ["a"] * 6 + ["b"] * 4 + ["c"] * 2
    base = advantages(rewards, groups, within)
    order = list(range(12))
    rng.shuffle(order)
    permuted = advantages([rewards[i] for i in order], [groups[i] for i in order], within)
    assert permuted.advantages == [base.advantages[i] for i in order]
    assert permuted.has_signal == [True] * 12


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_refused_with_its_row(bad):
    with pytest.raises(ValueError, match="row 1"):
        advantages([0.0, bad])


def test_rewards_and_group_ids_of_different_number_are_refused():
    with pytest.raises(ValueError, match="2 rewards for 1 group ids"):
        advantages([0.0, 1.0], ["a"])


def test_a_group_of_one_has_nobody_to_be_left_out_for():
    with pytest.raises(ValueError, match="take at least 2"):
        leave_one_out([1.0])


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9), st.sampled_from(sorted(WITHIN)))
def test_advantages_of_a_group_sum_to_zero_and_keep_the_order_of_rewards(rewards, within):
    found = advantages(rewards, within=within).advantages
    assert sum(found) == pytest.approx(0, abs=1e-6)
    pairs = sorted(zip(rewards, found, strict=True))
    assert all(low[1] <= high[1] + 1e-12 for low, high in itertools.pairwise(pairs))


def test_sums_from_each_position_on():
    assert sums_from([1.0, 2.0, 4.0]) == [7.0, 6.0, 4.0]
    assert sums_from([1.0, 2.0, 4.0], 0.5) == [3.0, 4.0, 4.0]
    assert sums_from([]) == []


class TestSteps:
    def test_a_token_has_the_sum_of_the_steps_that_end_at_it_or_later(self):
        assert step_sums([1.0, -3.0], [1, 3], 5) == [-2.0, -2.0, -3.0, -3.0, 0.0]
        assert step_sums([0.5], [0], 2) == [0.5, 0.0]
        assert step_sums([], [], 2) == [0.0, 0.0]

    @pytest.mark.parametrize("ends", [[3, 1], [1, 1], [-1, 2], [1, 5]])
    def test_ends_out_of_order_or_of_range_are_refused(self, ends):
        with pytest.raises(ValueError, match="must increase within a completion of 5 tokens"):
            step_sums([1.0, 1.0], ends, 5)

    def test_one_reward_for_each_end(self):
        with pytest.raises(ValueError, match="1 step rewards for 2 step ends"):
            step_sums([1.0], [0, 1], 5)


class TestGae:
    @pytest.mark.parametrize(
        ("gamma", "gae_lambda", "expected"),
        [
            (1.0, 0.95, [0.46575, 0.385, 0.3]),
            (0.9, 0.95, [0.2849575, 0.2865, 0.3]),
            (1.0, 1.0, [0.5, 0.4, 0.3]),  # the return minus the value
            (1.0, 0.0, [0.1, 0.1, 0.3]),  # one step ahead
        ],
    )
    def test_values(self, gamma, gae_lambda, expected):
        assert gae([0.0, 0.0, 1.0], [0.5, 0.6, 0.7], gamma, gae_lambda) == pytest.approx(expected, abs=1e-12)

    def test_a_value_is_needed_for_every_token(self):
        with pytest.raises(ValueError, match="2 token rewards for 1 values"):
            gae([0.0, 1.0], [0.5], 1.0, 1.0)
