"""What is added to a completion's reward before advantages are estimated."""

from typing import Any

import torch
from torch import Tensor

from tasks.grpo.components import KlInReward, SoftOverlong
from tasks.grpo.kl import ESTIMATORS


def overlong_penalty(num_tokens: int, max_new_tokens: int, config: SoftOverlong | Any) -> float:
    """0 up to L - C tokens, then linearly down to -weight at L.

        penalty(n) = -weight * max(0, n - (L - C)) / C,   L = max_new_tokens, C = cache_share * L

    Any other setting than ``SoftOverlong`` has penalty 0.

    Source: DAPO, arXiv:2503.14476, eq. 13 (its L_max is our L, its L_cache our C).
    """
    if not isinstance(config, SoftOverlong):
        return 0.0
    # From the limit down, so that the limit itself costs exactly the weight.
    share = 1.0 - (max_new_tokens - num_tokens) / (config.cache_share * max_new_tokens)
    return -config.weight * min(share, 1.0) if share > 0 else 0.0


def kl_penalties(policy_logprobs_T: Tensor, reference_logprobs_T: Tensor, config: KlInReward) -> list[float]:
    """[T] beta times the KL estimate of each token, float64.

    Args:
        policy_logprobs_T: [T] nats, under the policy that sampled.

    Source: InstructGPT, arXiv:2203.02155, eq. 2 (with k1); the other estimators: Schulman (2020).
    """
    policy_T, reference_T = policy_logprobs_T.double(), reference_logprobs_T.double()
    estimate_T: Tensor = config.beta * ESTIMATORS[config.estimator](policy_T, reference_T, policy_T)
    if not bool(torch.isfinite(estimate_T).all()):
        raise ValueError(f"the KL of a completion is not finite ({estimate_T.tolist()[:8]}); the reference is broken")
    return estimate_T.tolist()  # type: ignore[no-any-return]
