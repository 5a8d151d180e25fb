"""k3 against hand-worked values and gradients."""

import math

import pytest
import torch

from tasks.grpo.kl import EXPONENT_BOUND, k3


def value_and_gradient(d, dtype=torch.float64):
    policy = torch.zeros(1, dtype=dtype, requires_grad=True)
    value = k3(policy, policy.detach() + d)
    value.sum().backward()
    return value.item(), policy.grad.item()


@pytest.mark.parametrize(
    ("d", "value", "gradient"), [(0.0, 0.0, 0.0), (1.0, 0.718282, -1.718282), (-1.0, 0.367879, 0.632121)]
)
def test_values_and_gradients(d, value, gradient):
    found = value_and_gradient(d)
    assert found == pytest.approx((value, gradient), abs=1e-6)


@pytest.mark.parametrize("d", [100.0, 1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_beyond_the_bound_the_value_is_that_at_the_bound_and_the_gradient_is_zero(d, dtype):
    value, gradient = value_and_gradient(d, dtype)
    bound = math.copysign(EXPONENT_BOUND, d)
    assert value == pytest.approx(math.exp(bound) - bound - 1, rel=1e-6)
    assert gradient == 0.0


def test_it_is_never_negative():
    d = torch.linspace(-5, 5, 101, dtype=torch.float64)
    assert bool((k3(torch.zeros_like(d), d) >= 0).all())
