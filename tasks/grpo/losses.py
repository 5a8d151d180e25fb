"""Policy objectives: sums over tokens, scaled by a denominator that the caller gives for the whole batch.

Because a loss is a sum, cutting the batch into micro-batches, padding it or ordering it otherwise can not change it: the
caller adds the micro-batches' losses, all with the same denominator.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

RATIO_EXPONENT_BOUND = 20.0
"""Largest |policy - proximal| (nats) whose exponential is taken; beyond it the ratio is that at the bound."""


@dataclass(frozen=True)
class Surrogate:
    """A scalar loss, and per token (detached, [B, T]) the ratio and whether the clip took its gradient away."""

    loss: Tensor
    ratio_BT: Tensor
    is_clipped_BT: Tensor


def clipped_surrogate(
    policy_logprobs_BT: Tensor,
    proximal_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    weights_BT: Tensor,
    *,
    denominator: float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Surrogate:
    """Clipped importance-weighted policy gradient.

        L = -(1 / denominator) * sum_bt w * min(r * A, clip(r, 1 - low, 1 + high) * A),   r = exp(policy - proximal)

    Args:
        policy_logprobs_BT: [B, T] nats, under the weights being trained.
        proximal_logprobs_BT: [B, T] nats, under the weights that the ratio is taken to (frozen).
        advantages_BT: [B, T]; an outcome advantage is repeated over its completion.
        weights_BT: [B, T] weight of each token, 0 where it takes no part (what stands there otherwise does not matter,
            NaN included). Weight 1/length with denominator = number of sequences gives the sequence-mean of token-means.
        denominator: of the whole optimiser batch, never of a micro-batch; > 0.

    Errors: ValueError when the denominator is not positive.
    Source: PPO, arXiv:1707.06347, eq. 7; separate bounds: DAPO, arXiv:2503.14476, eq. 8; aggregation of
        DeepSeekMath, arXiv:2402.03300, eq. 3.
    """
    if not denominator > 0:
        raise ValueError(f"denominator {denominator} is not positive: there is nothing to average over")
    takes_part_BT = weights_BT != 0
    # Selected before any arithmetic: 0 * NaN is NaN, forward and backward.
    difference_BT = torch.where(takes_part_BT, policy_logprobs_BT - proximal_logprobs_BT, 0.0)
    advantages_BT = torch.where(takes_part_BT, advantages_BT, 0.0)
    ratio_BT = torch.exp(torch.clamp(difference_BT, -RATIO_EXPONENT_BOUND, RATIO_EXPONENT_BOUND))
    clipped_BT = torch.clamp(ratio_BT, 1.0 - clip_low, 1.0 + clip_high)
    objective_BT = torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT)
    is_clipped_BT = takes_part_BT & (clipped_BT * advantages_BT < ratio_BT * advantages_BT)
    loss = -(weights_BT * objective_BT).sum() / denominator
    return Surrogate(loss, ratio_BT.detach(), is_clipped_BT.detach())


def sequence_mean_weights(mask_BT: Tensor) -> Tensor:
    """[B, T] float64 weights 1/length on the tokens of each sequence, 0 elsewhere; a sequence without tokens weighs nothing.

    Args:
        mask_BT: [B, T] bool, true on the completion tokens that take part.
    """
    lengths_B1 = mask_BT.sum(dim=1, keepdim=True)
    return mask_BT.double() / lengths_B1.clamp(min=1)
