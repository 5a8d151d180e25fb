"""Estimators of KL(policy || reference) from sampled tokens."""

import torch
from torch import Tensor

EXPONENT_BOUND = 20.0
"""Largest |reference - policy| (nats) whose exponential is taken; exp(20) is 4.9e8, far inside float32."""


def k3(policy_logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """k3 = exp(d) - d - 1 with d = reference - policy, per token; never negative, unbiased for on-policy tokens.

    ``d`` is bounded to +-``EXPONENT_BOUND`` before the exponential: beyond it the value is that at the bound and the
    gradient is 0. (Bounding the result instead leaves 0 * inf = NaN in the backward pass.)

    Args:
        policy_logprobs, reference_logprobs: any one shape, nats, float32 or better.

    Returns:
        The same shape. d/d(policy) = 1 - exp(d).

    Source: DeepSeekMath, arXiv:2402.03300, eq. 4; Schulman, "Approximating KL Divergence" (2020).
    """
    d = torch.clamp(reference_logprobs - policy_logprobs, -EXPONENT_BOUND, EXPONENT_BOUND)
    return torch.exp(d) - d - 1.0
