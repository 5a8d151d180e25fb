"""The clipped surrogate against hand-worked values and gradients, in float64."""

import math

import pytest
import torch

from tasks.grpo.losses import clipped_surrogate, sequence_mean_weights


def surrogate(policy, proximal, advantages, weights, denominator, **clip):
    tensors = [torch.tensor(each, dtype=torch.float64) for each in (policy, proximal, advantages, weights)]
    tensors[0].requires_grad_()
    found = clipped_surrogate(*tensors, denominator=denominator, **clip)
    found.loss.backward()
    return found, tensors[0].grad


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
            clipped_surrogate(
                policy[rows], torch.zeros(2, 6)[rows], -LOSSES[rows], weights[rows], denominator=denominator
            ).loss
            for rows in cut
        )
        total.backward()
        assert total.item() == pytest.approx(expected, abs=1e-12)
        gradients.append(policy.grad)
    assert torch.equal(gradients[0], gradients[1])


def test_the_length_bias_of_each_aggregation():
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    cases = {
        "sequence": (sequence_mean_weights(mask), 2.0, [0.5, 0.125]),
        "token": (mask.double(), 5.0, [0.2, 0.2]),
        "constant": (mask.double(), 16.0, [0.0625, 0.0625]),
    }
    for weights, denominator, (short, long) in cases.values():
        policy = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
        clipped_surrogate(
            policy, torch.zeros(2, 4), -torch.ones(2, 4, dtype=torch.float64), weights, denominator=denominator
        ).loss.backward()
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
    found = clipped_surrogate(policy, 0 * one, advantage * one, one, denominator=1.0)
    found.loss.backward()
    assert math.isfinite(found.loss.item())
    assert math.isfinite(policy.grad.item())


def test_a_denominator_of_zero_is_refused():
    with pytest.raises(ValueError, match="denominator 0"):
        surrogate([[0.0]], [[0.0]], [[1.0]], [[0.0]], 0.0)


def test_a_sequence_without_tokens_weighs_nothing():
    mask = torch.tensor([[True, True], [False, False]])
    assert sequence_mean_weights(mask).tolist() == [[0.5, 0.5], [0.0, 0.0]]
