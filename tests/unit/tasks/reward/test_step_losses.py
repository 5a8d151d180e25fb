"""The loss of step labels: values and gradients worked out by hand."""

import math

import pytest
import torch

from tasks.reward.step_losses import step_cross_entropy


def loss_and_gradient(logits, labels, denominator=1.0, dtype=torch.float64):
    logits_N = torch.tensor(logits, dtype=dtype, requires_grad=True)
    loss = step_cross_entropy(logits_N, torch.tensor(labels, dtype=torch.float64), denominator=denominator)
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


def test_half_precision_logits_are_raised_before_anything_else():
    loss = step_cross_entropy(torch.tensor([10.0], dtype=torch.bfloat16), torch.tensor([1.0]), denominator=1.0)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(4.5399e-5, rel=1e-4)


@pytest.mark.parametrize("denominator", [0.0, -1.0, math.nan])
def test_a_loss_over_no_steps_is_refused(denominator):
    with pytest.raises(ValueError, match="no steps to average over"):
        step_cross_entropy(torch.zeros(1), torch.zeros(1), denominator=denominator)


def test_labels_that_do_not_match_the_logits_are_refused():
    with pytest.raises(ValueError, match=r"logits \(2,\) and labels \(1,\)"):
        step_cross_entropy(torch.zeros(2), torch.zeros(1), denominator=1.0)
