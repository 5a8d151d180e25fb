"""The objectives by their settings: what a micro-batch adds to the loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.grpo import losses
from tasks.grpo.aggregation import AGGREGATIONS
from tasks.grpo.components import (
    CispoObjective,
    ClipObjective,
    LogLikelihoodObjective,
    SequenceClipObjective,
    SequenceTokenClipObjective,
)
from tasks.grpo.config import UpdateConfig
from tasks.grpo.kl import ESTIMATORS as KL_ESTIMATORS
from tasks.grpo.losses import Surrogate

LogRatio = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(policy, proximal, mask), all [B, C] -> [B, C]."""


@dataclass(frozen=True)
class MicroBatch:
    """What an objective reads, all [B, C] with C the longest completion.

    ``mask_BC`` marks the tokens that take part. ``correction_BC``: frozen factor of each token's policy term.
    """

    policy_logprobs_BC: Tensor
    proximal_logprobs_BC: Tensor
    reference_logprobs_BC: Tensor | None
    advantages_BC: Tensor
    mask_BC: Tensor
    correction_BC: Tensor
    entropy_BC: Tensor


@dataclass(frozen=True)
class Objective:
    """A scalar loss to back-propagate, and detached sums over the micro-batch's tokens for the metrics."""

    loss: Tensor
    sums: dict[str, Tensor]
    largest_ratio: Tensor


def _clipped(
    log_ratio: LogRatio,
    batch: MicroBatch,
    weights_BC: Tensor,
    denominator: float,
    config: ClipObjective | SequenceClipObjective | SequenceTokenClipObjective,
) -> Surrogate:
    return losses.clipped_surrogate(
        log_ratio(batch.policy_logprobs_BC, batch.proximal_logprobs_BC, batch.mask_BC),
        batch.advantages_BC,
        weights_BC,
        denominator=denominator,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip if isinstance(config, ClipObjective) else None,
    )


def clip(batch: MicroBatch, weights_BC: Tensor, denominator: float, config: ClipObjective) -> Surrogate:
    """The clipped surrogate with the ratio of each token.

    Source: DeepSeekMath, arXiv:2402.03300, eq. 3; DAPO, arXiv:2503.14476, eq. 8 (separate bounds).
    """
    return _clipped(losses.token_log_ratio, batch, weights_BC, denominator, config)


def sequence_clip(
    batch: MicroBatch, weights_BC: Tensor, denominator: float, config: SequenceClipObjective
) -> Surrogate:
    """The clipped surrogate with one ratio per completion: of its mean log-ratio, or of the sum.

    Source: GSPO, arXiv:2507.18071, eq. 5 and 7 (mean); RLOO, arXiv:2402.14740 (sum).
    """
    log_ratio = {"mean": losses.sequence_log_ratio, "sum": losses.completion_log_ratio}[config.length]
    return _clipped(log_ratio, batch, weights_BC, denominator, config)


def sequence_token_clip(
    batch: MicroBatch, weights_BC: Tensor, denominator: float, config: SequenceTokenClipObjective
) -> Surrogate:
    """The completion's mean ratio as value, each token's own gradient.

    Source: GSPO, arXiv:2507.18071, eq. 13 and 14.
    """
    return _clipped(losses.sequence_token_log_ratio, batch, weights_BC, denominator, config)


def cispo(batch: MicroBatch, weights_BC: Tensor, denominator: float, config: CispoObjective) -> Surrogate:
    """The bounded ratio as a constant weight on A log pi.

    Source: MiniMax-M1, arXiv:2506.13585, eq. 4 and 5.
    """
    log_ratio_BC = losses.token_log_ratio(batch.policy_logprobs_BC, batch.proximal_logprobs_BC, batch.mask_BC)
    return losses.weighted_likelihood(
        batch.policy_logprobs_BC,
        log_ratio_BC,
        batch.advantages_BC,
        weights_BC,
        denominator=denominator,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )


def log_likelihood(
    batch: MicroBatch, weights_BC: Tensor, denominator: float, config: LogLikelihoodObjective
) -> Surrogate:
    """A log pi; the ratio is 1 by definition.

    Source: DeepSeekMath, arXiv:2402.03300, appendix A.1.2 and A.1.3.
    """
    del config  # no knobs
    loss = losses.likelihood(batch.policy_logprobs_BC, batch.advantages_BC, weights_BC, denominator=denominator)
    return Surrogate(loss, torch.ones_like(batch.advantages_BC), torch.zeros_like(batch.mask_BC))


OBJECTIVES: dict[type, Callable[[MicroBatch, Tensor, float, Any], Surrogate]] = {
    ClipObjective: clip,
    SequenceClipObjective: sequence_clip,
    SequenceTokenClipObjective: sequence_token_clip,
    CispoObjective: cispo,
    LogLikelihoodObjective: log_likelihood,
}


def objective(batch: MicroBatch, config: UpdateConfig, denominator: float) -> Objective:
    """The policy term, plus beta * KL and minus the entropy bonus, all aggregated in the same way.

    L = (1 / denominator) * sum_bt w_bt * (correction_bt * policy_bt + beta * kl_bt - c * entropy_bt)

    Args:
        denominator: of the whole optimiser batch, of ``AGGREGATIONS``.
    """
    dtype = batch.policy_logprobs_BC.dtype
    weights_BC = AGGREGATIONS[type(config.aggregation)].weights(batch.mask_BC).to(dtype)
    # The correction is frozen, so it is a factor of the weight; the KL and the entropy are not corrected.
    corrected_BC = torch.where(batch.mask_BC, weights_BC * batch.correction_BC.to(dtype), 0.0)
    surrogate = OBJECTIVES[type(config.objective)](batch, corrected_BC, denominator, config.objective)
    loss = surrogate.loss
    ratio_BC = torch.where(batch.mask_BC, surrogate.ratio_BT, 0.0)
    sums = {
        "policy_loss": surrogate.loss.detach(),
        "ratio": ratio_BC.sum(),
        "clipped": surrogate.is_clipped_BT.sum(),
        "entropy": torch.where(batch.mask_BC, batch.entropy_BC.detach(), 0.0).sum(),
        "tokens": batch.mask_BC.sum(),
    }
    if batch.reference_logprobs_BC is not None and config.kl.placement == "loss":
        # Selected before the arithmetic: 0 * NaN is NaN in the backward pass.
        logprobs = (batch.policy_logprobs_BC, batch.reference_logprobs_BC, batch.proximal_logprobs_BC)
        kl_BC = KL_ESTIMATORS[config.kl.estimator](*(torch.where(batch.mask_BC, each, 0.0) for each in logprobs))
        loss = loss + config.kl.beta * losses.weighted_sum(kl_BC, weights_BC, denominator=denominator)
        sums["kl"] = kl_BC.detach().sum()
    if config.entropy_coefficient:
        bonus = losses.weighted_sum(batch.entropy_BC, weights_BC, denominator=denominator)
        loss = loss - config.entropy_coefficient * bonus
    return Objective(loss, sums, ratio_BC.max())
