"""Estimators of KL(policy || reference) from sampled tokens."""

from collections.abc import Callable

import torch
from torch import Tensor

EXPONENT_BOUND = 20.0
"""Largest |reference - policy| (nats) whose exponential is taken; exp(20) is 4.9e8, far inside float32."""


def k1(policy_logprobs: Tensor, reference_logprobs: Tensor, proximal_logprobs: Tensor | None = None) -> Tensor:
    """k1 = -d with d = reference - policy, per token: unbiased, of either sign, of high variance.

    As a loss its expected gradient is zero (that of a log-likelihood under its own distribution), so it is offered for
    the reward only.

    Args:
        policy_logprobs, reference_logprobs: any one shape, nats, float32 or better.

    Source: Schulman, "Approximating KL Divergence" (2020).
    """
    del proximal_logprobs  # no part in it; it stands in the signature of every estimator
    return policy_logprobs - reference_logprobs


def k2(policy_logprobs: Tensor, reference_logprobs: Tensor, proximal_logprobs: Tensor | None = None) -> Tensor:
    """k2 = d^2 / 2 with d = reference - policy, per token: biased, of low variance; d/d(policy) = -d.

    On-policy, its gradient is an unbiased estimate of the gradient of KL(policy || reference).

    Source: Schulman, "Approximating KL Divergence" (2020).
    """
    del proximal_logprobs  # as above
    d = reference_logprobs - policy_logprobs
    return 0.5 * d * d


def k3(policy_logprobs: Tensor, reference_logprobs: Tensor, proximal_logprobs: Tensor | None = None) -> Tensor:
    """k3 = exp(d) - d - 1 with d = reference - policy, per token; never negative, unbiased for on-policy tokens.

    ``d`` is bounded to +-``EXPONENT_BOUND`` before the exponential: beyond it the value is that at the bound and the
    gradient is 0. (Bounding the result instead leaves 0 * inf = NaN in the backward pass.)

    Args:
        policy_logprobs, reference_logprobs: any one shape, nats, float32 or better.

    Returns:
        The same shape. d/d(policy) = 1 - exp(d).

    Source: DeepSeekMath, arXiv:2402.03300, eq. 4; Schulman, "Approximating KL Divergence" (2020).
    """
    del proximal_logprobs  # as above
    d = torch.clamp(reference_logprobs - policy_logprobs, -EXPONENT_BOUND, EXPONENT_BOUND)
    return torch.exp(d) - d - 1.0


def k3_importance(policy_logprobs: Tensor, reference_logprobs: Tensor, proximal_logprobs: Tensor) -> Tensor:
    """exp(policy - proximal) * k3: unbiased off-policy, and its gradient is that of the KL itself.

    On-policy d/d(policy) = k3 + 1 - exp(d) = -d, the gradient of KL(policy || reference); plain k3 has 1 - exp(d)
    instead, which belongs to the KL in the other direction. Both exponents are bounded before ``exp``.

    Args:
        proximal_logprobs: the frozen log-probabilities that the policy's ratio is taken to.

    Source: DeepSeek-V3.2, arXiv:2512.02556, section 3.1 ("unbiased KL estimate").
    """
    log_ratio = torch.clamp(policy_logprobs - proximal_logprobs, -EXPONENT_BOUND, EXPONENT_BOUND)
    return torch.exp(log_ratio) * k3(policy_logprobs, reference_logprobs)


ESTIMATORS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "k1": k1,
    "k2": k2,
    "k3": k3,
    "k3_importance": k3_importance,
}
"""By name, each of (policy, reference, proximal) log-probabilities."""
