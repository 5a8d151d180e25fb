"""The cross-entropy of step labels, soft ones above all: values and gradients worked out by hand."""

import math

import pytest
import torch

from tasks.reward.losses import binary_cross_entropy


def loss_and_gradient(logits, labels, denominator=1.0, dtype=torch.float64):
    logits_N = torch.tensor(logits, dtype=dtype, requires_grad=True)
    loss = binary_cross_entropy(logits_N, torch.tensor(labels, dtype=torch.float64), denominator=denominator)
    loss.backward()
    return loss.item(), logits_N.grad.tolist()


def test_hard_and_soft_labels_cost_what_the_formula_says():
    # z = ln 3 is a probability of 3/4: -ln(3/4), -ln(1/4), and for y = 1/4 a quarter of the one and 3/4 of the other.
    loss, gradient = loss_and_gradient([math.log(3)] * 3, [1.0, 0.0, 0.25])
    right, wrong = math.log(4 / 3), math.log(4)
    assert loss == pytest.approx(right + wrong + 0.25 * right + 0.75 * wrong, abs=1e-12)
    assert gradient == pytest.approx([-0.25, 0.75, 0.5], abs=1e-12)


def test_the_least_loss_of_a_soft_label_is_its_entropy_and_has_no_gradient():
    loss, gradient = loss_and_gradient([math.log(0.25 / 0.75)], [0.25])
    assert loss == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), abs=1e-12)
    assert gradient == pytest.approx([0.0], abs=1e-12)


def test_the_denominator_is_the_callers_so_that_micro_batches_add_up():
    whole, gradient = loss_and_gradient([0.5, -1.0, 2.0], [1.0, 0.0, 0.5], denominator=3.0)
    first, left = loss_and_gradient([0.5, -1.0], [1.0, 0.0], denominator=3.0)
    second, right = loss_and_gradient([2.0], [0.5], denominator=3.0)
    assert first + second == pytest.approx(whole, abs=1e-12)
    assert [*left, *right] == pytest.approx(gradient, abs=1e-12)
    assert whole == pytest.approx(
        (math.log1p(math.exp(-0.5)) + math.log1p(math.exp(-1)) + math.log1p(math.exp(2)) - 1) / 3
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("logit", "label", "loss", "gradient"),
    [(-100.0, 1.0, 100.0, -1.0), (100.0, 0.0, 100.0, 1.0), (100.0, 1.0, 0.0, 0.0), (-100.0, 0.25, 25.0, -0.25)],
)
def test_an_extreme_logit_has_a_finite_loss_and_gradient(dtype, logit, label, loss, gradient):
    found, slope = loss_and_gradient([logit], [label], dtype=dtype)
    assert found == pytest.approx(loss, abs=1e-6)
    assert slope == pytest.approx([gradient], abs=1e-6)
