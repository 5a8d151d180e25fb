"""Numbers without a model: the preference loss, batches by length."""

import math

import pytest
import torch

from tasks.reward.losses import bradley_terry
from tasks.reward.scorer import length_batches, padded


@pytest.mark.parametrize(
    ("margin", "loss", "gradient"),
    [(-100.0, 100.0, -1.0), (0.0, 0.693147, -0.5), (2.0, 0.126928, -0.119203), (100.0, 0.0, 0.0)],
)
def test_bradley_terry_values_and_gradients(margin, loss, gradient):
    chosen = torch.tensor([margin], dtype=torch.float64, requires_grad=True)
    found = bradley_terry(chosen, torch.zeros(1, dtype=torch.float64), denominator=1.0)
    found.backward()
    assert (found.item(), chosen.grad.item()) == pytest.approx((loss, gradient), abs=1e-6)


@pytest.mark.parametrize("margin", [-1000.0, -100.0, 1000.0])
def test_a_large_margin_keeps_a_finite_loss_and_gradient_in_float32(margin):
    chosen = torch.tensor([margin], requires_grad=True)
    found = bradley_terry(chosen, torch.zeros(1), denominator=1.0)
    found.backward()
    assert found.item() == pytest.approx(max(0.0, -margin), abs=1e-6)
    assert chosen.grad.item() == pytest.approx(-1.0 if margin < 0 else 0.0, abs=1e-6)


def test_bradley_terry_sums_over_the_denominator_and_raises_half_precision():
    scores = torch.tensor([10.0, 0.0], dtype=torch.bfloat16)
    found = bradley_terry(scores, torch.zeros(2, dtype=torch.bfloat16), denominator=4.0)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx((4.54e-5 + math.log(2)) / 4, rel=1e-4)
    with pytest.raises(ValueError, match="denominator 0"):
        bradley_terry(scores, scores, denominator=0)


def test_batches_hold_the_budget_and_every_index_once():
    batches = length_batches([3, 9, 1, 4, 4], 8)
    assert batches == [[1], [3, 4], [0, 2]]


def test_an_empty_sequence_has_no_score():
    with pytest.raises(ValueError, match="sequence 1 of the batch is empty"):
        padded([[5], []], torch.device("cpu"))


def test_bradley_terry_gradients_of_two_pairs_by_hand():
    chosen = torch.tensor([1.0, -1.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    found = bradley_terry(chosen, rejected, denominator=2.0)
    found.backward()
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx((0.313261687518 + 2.126928011043) / 2, abs=1e-11)
    expected = torch.tensor([-0.268941421370 / 2, -0.880797077978 / 2], dtype=torch.float64)
    assert torch.allclose(chosen.grad, expected, atol=1e-11)
    assert torch.allclose(rejected.grad, -expected, atol=1e-11)
