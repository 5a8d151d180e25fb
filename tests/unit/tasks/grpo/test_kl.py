"""KL estimators against hand-worked values and gradients."""

import math

import pytest
import torch

from tasks.grpo.kl import ESTIMATORS, EXPONENT_BOUND, k1, k2, k3, k3_importance


def value_and_gradient(name, d, *, log_ratio=0.0, dtype=torch.float64):
    """At policy 0, reference d and proximal -log_ratio."""
    policy = torch.zeros(1, dtype=dtype, requires_grad=True)
    value = ESTIMATORS[name](policy, policy.detach() + d, policy.detach() - log_ratio)
    value.sum().backward()
    return value.item(), policy.grad.item()


@pytest.mark.parametrize(
    ("name", "d", "value", "gradient"),
    [
        ("k1", 1.0, -1.0, 1.0),
        ("k1", -1.0, 1.0, 1.0),
        ("k2", 1.0, 0.5, -1.0),
        ("k2", -2.0, 2.0, 2.0),
        ("k3", 0.0, 0.0, 0.0),
        ("k3", 1.0, 0.718282, -1.718282),
        ("k3", -1.0, 0.367879, 0.632121),
        ("k3_importance", 0.0, 0.0, 0.0),
        ("k3_importance", 1.0, 0.718282, -1.0),  # on-policy the gradient is -d, that of KL(policy || reference)
        ("k3_importance", -1.0, 0.367879, 1.0),
    ],
)
def test_values_and_gradients(name, d, value, gradient):
    assert value_and_gradient(name, d) == pytest.approx((value, gradient), abs=1e-6)


def test_the_importance_weight_is_the_ratio_to_the_frozen_policy():
    value, gradient = value_and_gradient("k3_importance", 1.0, log_ratio=math.log(2.0))
    assert value == pytest.approx(2 * 0.718282, abs=1e-5)
    assert gradient == pytest.approx(2 * (0.718282 - 1.718282), abs=1e-5)


@pytest.mark.parametrize("name", ["k3", "k3_importance"])
@pytest.mark.parametrize("d", [100.0, 1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_beyond_the_bound_the_value_is_that_at_the_bound(name, d, dtype):
    value, gradient = value_and_gradient(name, d, dtype=dtype)
    bound = math.copysign(EXPONENT_BOUND, d)
    at_the_bound = math.exp(bound) - bound - 1
    assert value == pytest.approx(at_the_bound, rel=1e-6)
    assert gradient == pytest.approx(0.0 if name == "k3" else at_the_bound, rel=1e-6)


@pytest.mark.parametrize("log_ratio", [500.0, -500.0])
def test_an_extreme_importance_weight_keeps_value_and_gradient_finite(log_ratio):
    found = value_and_gradient("k3_importance", 1.0, log_ratio=log_ratio, dtype=torch.float32)
    assert all(math.isfinite(each) for each in found)


@pytest.mark.parametrize("name", ["k2", "k3", "k3_importance"])
def test_it_is_never_negative(name):
    d = torch.linspace(-5, 5, 101, dtype=torch.float64)
    assert bool((ESTIMATORS[name](torch.zeros_like(d), d, torch.zeros_like(d)) >= 0).all())


def exact(policy_logits, reference_logits):
    policy, reference = torch.log_softmax(policy_logits, 0), torch.log_softmax(reference_logits, 0)
    return (policy.exp() * (policy - reference)).sum()


@pytest.mark.parametrize("estimator", [k1, k3])
def test_k1_and_k3_have_the_kl_as_their_expectation(estimator):
    policy = torch.log_softmax(torch.tensor([1.0, 0.0, -1.0, 0.5], dtype=torch.float64), 0)
    reference = torch.log_softmax(torch.tensor([0.0, 0.3, 0.2, -0.5], dtype=torch.float64), 0)
    expected = exact(policy, reference).item()
    assert (policy.exp() * estimator(policy, reference)).sum().item() == pytest.approx(expected, abs=1e-12)


def expected_gradient(estimator):
    """sum over v of p(v) (held constant) times the gradient of the estimator at v: what sampling gives on average."""
    logits = torch.tensor([1.0, 0.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.0, 0.3, 0.2, -0.5], dtype=torch.float64), 0)
    policy = torch.log_softmax(logits, 0)
    (policy.detach().exp() * estimator(policy, reference)).sum().backward()
    found = logits.grad.clone()
    logits.grad = None
    exact(logits, reference).backward()
    return found, logits.grad


@pytest.mark.parametrize("estimator", [k2, lambda policy, reference: k3_importance(policy, reference, policy.detach())])
def test_k2_and_the_weighted_k3_have_the_gradient_of_the_kl(estimator):
    found, exact_gradient = expected_gradient(estimator)
    assert torch.allclose(found, exact_gradient, atol=1e-12)


def test_k1_in_a_loss_would_pull_nowhere_and_k3_pulls_elsewhere():
    found, exact_gradient = expected_gradient(k1)
    assert torch.allclose(found, torch.zeros(4, dtype=torch.float64), atol=1e-12)
    assert float(exact_gradient.abs().max()) > 0.1
    found, _ = expected_gradient(k3)
    assert not torch.allclose(found, exact_gradient, atol=1e-2)
