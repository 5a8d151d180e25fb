"""Objectives against hand-worked values and gradients, in float64."""

import math

import pytest
import torch

from tasks.grpo.aggregation import fixed_length, sequence_mean_weights
from tasks.grpo.components import FixedLength
from tasks.grpo.losses import (
    clipped_surrogate,
    clipped_value_loss,
    completion_log_ratio,
    likelihood,
    sequence_log_ratio,
    sequence_token_log_ratio,
    token_log_ratio,
    weighted_likelihood,
    weighted_sum,
)


def float64(*values):
    return [torch.tensor(each, dtype=torch.float64) for each in values]


def surrogate(policy, proximal, advantages, weights, denominator, log_ratio=token_log_ratio, **clip):
    policy_BT, proximal_BT, advantages_BT, weights_BT = float64(policy, proximal, advantages, weights)
    policy_BT.requires_grad_()
    found = clipped_surrogate(
        log_ratio(policy_BT, proximal_BT, weights_BT != 0), advantages_BT, weights_BT, denominator=denominator, **clip
    )
    found.loss.backward()
    return found, policy_BT.grad


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "gradient"),
    [
        (1, 0.5, -0.5, -0.5),
        (1, 1.0, -1.0, -1.0),
        (1, 1.5, -1.2, 0.0),
        (-1, 0.5, 0.8, 0.0),
        (-1, 1.0, 1.0, 1.0),
        (-1, 1.5, 1.5, 1.5),
    ],
)
def test_a_ratio_past_the_bound_keeps_its_value_and_loses_its_gradient(advantage, ratio, loss, gradient):
    found, grad = surrogate([[math.log(ratio)]], [[0.0]], [[float(advantage)]], [[1.0]], 1.0)
    assert found.loss.item() == pytest.approx(loss, abs=1e-12)
    assert grad.item() == pytest.approx(gradient, abs=1e-12)
    assert found.ratio_BT.item() == pytest.approx(ratio)


def test_two_of_the_six_cases_count_as_clipped():
    ratios = [math.log(r) for r in (0.5, 1.0, 1.5)] * 2
    found, _ = surrogate([ratios], [[0.0] * 6], [[1.0] * 3 + [-1.0] * 3], [[1.0] * 6], 1.0)
    assert found.is_clipped_BT.tolist() == [[False, False, True, True, False, False]]


def test_the_two_bounds_are_separate():
    found, _ = surrogate([[math.log(1.25)]], [[0.0]], [[1.0]], [[1.0]], 1.0, clip_low=0.2, clip_high=0.28)
    assert found.loss.item() == pytest.approx(-1.25)
    found, _ = surrogate([[math.log(0.75)]], [[0.0]], [[-1.0]], [[1.0]], 1.0, clip_low=0.2, clip_high=0.28)
    assert found.loss.item() == pytest.approx(0.8)


def test_on_policy_the_ratio_is_one_the_loss_zero_and_the_gradient_is_not():
    logprobs = [[-1.0], [-2.0], [-0.5], [-3.0]]
    found, grad = surrogate(logprobs, logprobs, [[1.0], [1.0], [-1.0], [-1.0]], [[1.0]] * 4, 4.0)
    assert found.ratio_BT.flatten().tolist() == [1.0] * 4
    assert found.loss.item() == 0.0
    assert not found.is_clipped_BT.any()
    assert grad.flatten().tolist() == [-0.25, -0.25, 0.25, 0.25]


# Two sequences whose tokens have loss 1.0 (two of them) and 0.5 (six): advantage is minus the loss at ratio 1.
MASK = torch.tensor([[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], dtype=torch.bool)
LOSSES = torch.tensor([[1.0] * 6, [0.5] * 6], dtype=torch.float64)
AGGREGATIONS = {
    "token mean": (MASK.double(), 8.0, 0.625),
    "sequence mean of token means": (sequence_mean_weights(MASK), 2.0, 0.75),
    "sum over a constant length": (MASK.double(), 2 * 8.0, 0.3125),
}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_cutting_the_batch_into_micro_batches_changes_neither_loss_nor_gradient(name):
    weights, denominator, expected = AGGREGATIONS[name]
    gradients = []
    for cut in ([slice(0, 2)], [slice(0, 1), slice(1, 2)]):
        policy = torch.zeros(2, 6, dtype=torch.float64, requires_grad=True)
        total = sum(
            clipped_surrogate(policy[rows], -LOSSES[rows], weights[rows], denominator=denominator).loss for rows in cut
        )
        total.backward()
        assert total.item() == pytest.approx(expected, abs=1e-12)
        gradients.append(policy.grad)
    assert torch.equal(gradients[0], gradients[1])


def test_a_constant_length_is_multiplied_by_the_completions_and_not_by_those_of_a_micro_batch():
    losses = torch.tensor([[4.0], [2.0], [6.0], [8.0]], dtype=torch.float64)  # a completion's tokens, summed
    denominator = fixed_length([8, 8, 8, 8], 8, FixedLength(kind="fixed_length"))
    parts = [
        clipped_surrogate(0 * cut, -cut, torch.ones_like(cut), denominator=denominator).loss.item()
        for cut in losses.split(2)
    ]
    assert sum(parts) == pytest.approx(0.625, abs=1e-12)


def test_the_length_bias_of_each_aggregation():
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    cases = {
        "sequence": (sequence_mean_weights(mask), 2.0, [0.5, 0.125]),
        "token": (mask.double(), 5.0, [0.2, 0.2]),
        "constant": (mask.double(), 16.0, [0.0625, 0.0625]),
    }
    for weights, denominator, (short, long) in cases.values():
        policy = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
        advantages = -torch.ones(2, 4, dtype=torch.float64)
        clipped_surrogate(policy, advantages, weights, denominator=denominator).loss.backward()
        assert policy.grad[0].tolist() == pytest.approx([short, 0, 0, 0])
        assert policy.grad[1].tolist() == pytest.approx([long] * 4)


def test_what_stands_under_the_mask_does_not_matter_even_when_it_is_not_a_number():
    nan, inf = math.nan, math.inf
    found, grad = surrogate([[-1.0, nan]], [[-1.5, inf]], [[2.0, nan]], [[1.0, 0.0]], 1.0)
    clean, clean_grad = surrogate([[-1.0]], [[-1.5]], [[2.0]], [[1.0]], 1.0)
    assert found.loss.item() == clean.loss.item()
    assert grad.tolist() == [[clean_grad.item(), 0.0]]


@pytest.mark.parametrize("difference", [500.0, -500.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_extreme_ratios_keep_loss_and_gradient_finite(difference, advantage):
    policy = torch.full((1, 1), difference, requires_grad=True)  # float32, where exp(500) is infinite
    one = torch.ones(1, 1)
    found = clipped_surrogate(policy, advantage * one, one, denominator=1.0)
    found.loss.backward()
    assert math.isfinite(found.loss.item())
    assert math.isfinite(policy.grad.item())


def test_a_sequence_without_tokens_weighs_nothing():
    mask = torch.tensor([[True, True], [False, False]])
    assert sequence_mean_weights(mask).tolist() == [[0.5, 0.5], [0.0, 0.0]]


def test_the_token_means_weights_are_exact_also_for_lengths_that_do_not_divide():
    mask = torch.ones(1, 3, dtype=torch.bool)
    assert sequence_mean_weights(mask).sum().item() == 1.0


class TestDualClip:
    @pytest.mark.parametrize(
        ("advantage", "ratio", "loss", "gradient"),
        [(-1, 5.0, 3.0, 0.0), (1, 5.0, -1.2, 0.0), (-1, 2.0, 2.0, 2.0), (-2, 5.0, 6.0, 0.0), (1, 1.1, -1.1, -1.1)],
    )
    def test_it_bounds_the_loss_of_negative_advantages_only(self, advantage, ratio, loss, gradient):
        found, grad = surrogate([[math.log(ratio)]], [[0.0]], [[float(advantage)]], [[1.0]], 1.0, dual_clip=3.0)
        assert found.loss.item() == pytest.approx(loss, abs=1e-12)
        assert grad.item() == pytest.approx(gradient, abs=1e-12)
        assert found.is_clipped_BT.item() == (gradient == 0)


# Per-token log-ratios whose sum is 0.3 and whose mean is 0.075, in a row with one token of padding.
LOG_RATIOS = [[0.1, 0.1, -0.2, 0.3, 9.0]]
WEIGHTS = [[0.25, 0.25, 0.25, 0.25, 0.0]]
WIDE = {"clip_low": 0.9, "clip_high": 9.0}


class TestSequenceRatios:
    def ratios(self, log_ratio):
        (policy,) = float64(LOG_RATIOS)
        mask = torch.tensor([[True] * 4 + [False]])
        return torch.exp(log_ratio(policy, torch.zeros_like(policy), mask))[0].tolist()

    def test_the_values(self):
        assert self.ratios(sequence_log_ratio) == pytest.approx([1.0778842] * 4 + [1.0], abs=1e-6)
        assert self.ratios(completion_log_ratio) == pytest.approx([1.3498588] * 4 + [1.0], abs=1e-6)
        assert self.ratios(sequence_token_log_ratio) == pytest.approx([1.0778842] * 4 + [1.0], abs=1e-6)
        assert self.ratios(token_log_ratio) == pytest.approx([math.exp(x) for x in LOG_RATIOS[0][:4]] + [1.0])

    @pytest.mark.parametrize(
        ("log_ratio", "loss", "gradient"),
        [
            (sequence_log_ratio, -1.0778842, -1.0778842 / 4),
            (sequence_token_log_ratio, -1.0778842, -1.0778842 / 4),
            (completion_log_ratio, -1.3498588, -1.3498588),
        ],
    )
    def test_loss_and_gradient_of_one_completion(self, log_ratio, loss, gradient):
        found, grad = surrogate(LOG_RATIOS, [[0.0] * 5], [[1.0] * 5], WEIGHTS, 1.0, log_ratio, **WIDE)
        assert found.loss.item() == pytest.approx(loss, abs=1e-6)
        assert grad[0].tolist() == pytest.approx([gradient] * 4 + [0.0], abs=1e-6)

    def test_the_token_variant_keeps_the_advantage_of_each_token_apart(self):
        advantages = [[1.0, 0.0, 0.0, -2.0, 0.0]]
        _, grad = surrogate(LOG_RATIOS, [[0.0] * 5], advantages, WEIGHTS, 1.0, sequence_token_log_ratio, **WIDE)
        assert grad[0].tolist() == pytest.approx([-0.2694711, 0, 0, 0.5389421, 0], abs=1e-6)
        _, grad = surrogate(LOG_RATIOS, [[0.0] * 5], advantages, WEIGHTS, 1.0, sequence_log_ratio, **WIDE)
        assert grad[0].tolist() == pytest.approx([0.0673678] * 4 + [0.0], abs=1e-6)

    @pytest.mark.parametrize("log_ratio", [sequence_log_ratio, sequence_token_log_ratio])
    def test_past_the_bound_the_whole_completion_loses_its_gradient(self, log_ratio):
        bounds = {"clip_low": 3e-4, "clip_high": 4e-4}
        found, grad = surrogate(LOG_RATIOS, [[0.0] * 5], [[1.0] * 5], WEIGHTS, 1.0, log_ratio, **bounds)
        assert found.loss.item() == pytest.approx(-1.0004, abs=1e-12)
        assert grad.tolist() == [[0.0] * 5]
        assert found.is_clipped_BT.tolist() == [[True] * 4 + [False]]


def weighted(policy, log_ratio, advantages, weights, denominator, clip_low, clip_high):
    policy_BT, *others = float64(policy, log_ratio, advantages, weights)
    policy_BT.requires_grad_()
    found = weighted_likelihood(policy_BT, *others, denominator=denominator, clip_low=clip_low, clip_high=clip_high)
    found.loss.backward()
    return found, policy_BT.grad


class TestWeightedLikelihood:
    RATIOS = [[math.log(0.5), 0.0, math.log(6.0)]]

    @pytest.mark.parametrize(
        ("advantage", "clip_low", "loss", "gradient"),
        [
            (1.0, None, 6.5 / 3, [-0.5 / 3, -1 / 3, -5 / 3]),
            (-2.0, None, -13 / 3, [1 / 3, 2 / 3, 10 / 3]),
            (1.0, 0.2, 6.8 / 3, [-0.8 / 3, -1 / 3, -5 / 3]),
        ],
    )
    def test_the_upper_bound_is_one_plus_high_and_no_token_loses_its_gradient(
        self, advantage, clip_low, loss, gradient
    ):
        found, grad = weighted([[-1.0] * 3], self.RATIOS, [[advantage] * 3], [[1.0] * 3], 3.0, clip_low, 4.0)
        assert found.loss.item() == pytest.approx(loss, abs=1e-12)
        assert grad[0].tolist() == pytest.approx(gradient, abs=1e-12)
        assert found.is_clipped_BT.tolist() == [[clip_low is not None, False, True]]

    def test_the_weight_is_a_constant(self):
        policy = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
        one = torch.ones(1, 1, dtype=torch.float64)
        loss = weighted_likelihood(policy, policy + 1.5, one, one, denominator=1.0, clip_low=None, clip_high=4.0).loss
        loss.backward()
        assert policy.grad.item() == pytest.approx(-math.exp(0.5), abs=1e-12)


def test_the_likelihood_of_what_has_an_advantage():
    policy, advantages, weights = float64(
        [[-1.0, -2.0], [-4.0, math.nan]], [[1.0, 1.0], [0.0, 0.0]], [[0.5, 0.5], [1, 0]]
    )
    policy.requires_grad_()
    loss = likelihood(policy, advantages, weights, denominator=2.0)
    loss.backward()
    assert loss.item() == pytest.approx(0.75)
    assert policy.grad.tolist() == [[-0.25, -0.25], [0.0, 0.0]]


def test_a_weighted_sum_leaves_out_what_has_no_weight():
    values, weights = float64([[0.7, 0.3, math.nan, -1e9]], [[1, 1, 0, 0]])
    values.requires_grad_()
    total = weighted_sum(values, weights, denominator=2.0)
    total.backward()
    assert total.item() == pytest.approx(0.5)
    assert values.grad.tolist() == [[0.5, 0.5, 0.0, 0.0]]


class TestValueLoss:
    @pytest.mark.parametrize(
        ("value", "before", "target", "clip_value", "loss", "gradient", "is_clipped"),
        [
            (1.5, 1.0, 0.0, 0.2, 1.125, 1.5, False),  # farther off than the held value: it counts as it is
            (0.5, 1.0, 0.0, 0.2, 0.32, 0.0, True),  # nearer than the held value 0.8: no reward for going there at once
            (1.1, 1.0, 0.0, 0.2, 0.605, 1.1, False),
            (0.5, 1.0, 0.0, None, 0.125, 0.5, False),
        ],
    )
    def test_values_and_gradients(self, value, before, target, clip_value, loss, gradient, is_clipped):
        values, *others = float64([[value, math.nan]], [[before, 0]], [[target, 0]], [[1, 0]])
        values.requires_grad_()
        found, clipped = clipped_value_loss(values, *others, denominator=1.0, clip_value=clip_value)
        found.backward()
        assert found.item() == pytest.approx(loss, abs=1e-12)
        assert values.grad[0].tolist() == pytest.approx([gradient, 0.0], abs=1e-12)
        assert clipped.tolist() == [[is_clipped, False]]

    def test_the_denominator_is_that_of_the_whole_batch(self):
        ones = float64([[2.0]], [[2.0]], [[0.0]], [[1.0]])
        assert clipped_value_loss(*ones, denominator=4.0, clip_value=None)[0].item() == 0.5


ONE = torch.ones(1, 1)
OBJECTIVES = {
    "clipped": lambda d: clipped_surrogate(ONE, ONE, ONE, denominator=d),
    "weighted likelihood": lambda d: weighted_likelihood(ONE, ONE, ONE, ONE, denominator=d, clip_low=None, clip_high=1),
    "likelihood": lambda d: likelihood(ONE, ONE, ONE, denominator=d),
    "weighted sum": lambda d: weighted_sum(ONE, ONE, denominator=d),
    "value": lambda d: clipped_value_loss(ONE, ONE, ONE, ONE, denominator=d, clip_value=None),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("denominator", [0.0, -1.0, math.nan])
def test_a_denominator_that_is_not_positive_is_refused(name, denominator):
    with pytest.raises(ValueError, match="is not positive"):
        OBJECTIVES[name](denominator)
