"""What is added to a reward: the overlong punishment and the KL penalty."""

import math

import pytest
import torch

from tasks.grpo.components import KlInReward, NoOverlong, SoftOverlong
from tasks.grpo.shaping import kl_penalties, overlong_penalty


@pytest.mark.parametrize(
    ("num_tokens", "penalty"), [(0, 0.0), (79, 0.0), (80, 0.0), (85, -0.25), (90, -0.5), (99, -0.95), (100, -1.0)]
)
def test_the_punishment_grows_over_the_last_fifth(num_tokens, penalty):
    config = SoftOverlong(kind="soft", cache_share=0.2)
    assert overlong_penalty(num_tokens, 100, config) == pytest.approx(penalty, abs=1e-12)


def test_it_has_a_weight_and_an_end():
    config = SoftOverlong(kind="soft", cache_share=0.5, weight=2.0)
    assert overlong_penalty(75, 100, config) == pytest.approx(-1.0)
    assert overlong_penalty(140, 100, config) == pytest.approx(-2.0)


def test_without_it_no_length_costs_anything():
    assert overlong_penalty(100, 100, NoOverlong(kind="none")) == 0.0


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", [-0.1, 0.2]), ("k2", [0.05, 0.2]), ("k3", [0.0718282, 0.1135335])],
)
def test_the_penalty_of_each_token(estimator, expected):
    policy, reference = torch.tensor([-2.0, -1.0]), torch.tensor([-1.0, -3.0])
    config = KlInReward(placement="reward", estimator=estimator, beta=0.1)
    assert kl_penalties(policy, reference, config) == pytest.approx(expected, abs=1e-6)


def test_a_reference_that_is_not_finite_is_refused():
    config = KlInReward(placement="reward")
    with pytest.raises(ValueError, match="not finite"):
        kl_penalties(torch.tensor([-1.0]), torch.tensor([math.nan]), config)
