"""The objectives by name: what one algorithm adds to a micro-batch's loss."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.grpo.config import GrpoConfig
from tasks.grpo.kl import k3
from tasks.grpo.losses import clipped_surrogate, sequence_mean_weights


@dataclass(frozen=True)
class MicroBatch:
    """What an objective reads, all [B, C] with C the longest completion; ``mask_BC`` marks real completion tokens."""

    policy_logprobs_BC: Tensor
    proximal_logprobs_BC: Tensor
    reference_logprobs_BC: Tensor | None
    advantages_BC: Tensor
    mask_BC: Tensor


@dataclass(frozen=True)
class Objective:
    """A scalar loss to back-propagate, and detached sums over the micro-batch's tokens for the metrics."""

    loss: Tensor
    sums: dict[str, Tensor]


def grpo(batch: MicroBatch, config: GrpoConfig, denominator: float) -> Objective:
    """Clipped surrogate plus beta * k3 KL, each the sequence-mean of token-means.

        L = (1 / N) * sum_i (1 / |o_i|) * sum_t [ -min(r A, clip(r) A) + beta * k3 ]

    with N the sequences of the optimiser batch.

    Source: DeepSeekMath, arXiv:2402.03300, eq. 3 and 4.
    """
    weights_BC = sequence_mean_weights(batch.mask_BC).to(batch.policy_logprobs_BC.dtype)
    surrogate = clipped_surrogate(
        batch.policy_logprobs_BC,
        batch.proximal_logprobs_BC,
        batch.advantages_BC,
        weights_BC,
        denominator=denominator,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )
    loss = surrogate.loss
    sums = {
        "policy_loss": surrogate.loss.detach(),
        "ratio": torch.where(batch.mask_BC, surrogate.ratio_BT, 0.0).sum(),
        "clipped": surrogate.is_clipped_BT.sum(),
    }
    if batch.reference_logprobs_BC is not None:
        # Selected before the arithmetic: 0 * NaN is NaN in the backward pass.
        policy_BC, reference_BC = (
            torch.where(batch.mask_BC, each, 0.0) for each in (batch.policy_logprobs_BC, batch.reference_logprobs_BC)
        )
        kl_BC = k3(policy_BC, reference_BC)
        loss = loss + config.kl_beta * (weights_BC * kl_BC).sum() / denominator
        sums["kl"] = kl_BC.detach().sum()
    return Objective(loss, sums)


OBJECTIVES: dict[str, Callable[[MicroBatch, GrpoConfig, float], Objective]] = {"grpo": grpo}
