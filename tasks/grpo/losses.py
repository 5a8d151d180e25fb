"""Policy objectives: sums over tokens, scaled by a denominator that the caller gives for the whole batch.

Because a loss is a sum, cutting the batch into micro-batches, padding it or ordering it otherwise can not change it: the
caller adds the micro-batches' losses, all with the same denominator.

Shapes: B completions, T tokens of the longest. ``weights_BT`` is 0 where a token takes no part; what stands there otherwise
does not matter, NaN included, because it is replaced before any arithmetic (0 * NaN is NaN, forward and backward).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

RATIO_EXPONENT_BOUND = 20.0
"""Largest |log-ratio| (nats) whose exponential is taken; beyond it the ratio is that at the bound, with gradient 0."""


@dataclass(frozen=True)
class Surrogate:
    """A scalar loss, and per token (detached, [B, T]) the ratio and whether the clip took its gradient away or, for
    CISPO, bounded its weight."""

    loss: Tensor
    ratio_BT: Tensor
    is_clipped_BT: Tensor


def token_log_ratio(policy_logprobs_BT: Tensor, proximal_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log r_t = policy_t - proximal_t on the tokens that take part, 0 elsewhere.

    Source: PPO, arXiv:1707.06347, eq. 6.
    """
    return torch.where(mask_BT, policy_logprobs_BT, 0.0) - torch.where(mask_BT, proximal_logprobs_BT, 0.0)


def sequence_log_ratio(policy_logprobs_BT: Tensor, proximal_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log s = mean over the completion's tokens of log r_t, at each of its tokens.

    Its gradient with respect to a token's log-probability is 1 / length.

    Source: GSPO, arXiv:2507.18071, eq. 7.
    """
    log_ratio_BT = token_log_ratio(policy_logprobs_BT, proximal_logprobs_BT, mask_BT)
    mean_B1 = log_ratio_BT.sum(dim=1, keepdim=True) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(mask_BT, mean_B1.expand_as(log_ratio_BT), 0.0)


def completion_log_ratio(policy_logprobs_BT: Tensor, proximal_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log of the whole completion's ratio: the sum over its tokens of log r_t, at each of its tokens.

    Source: RLOO, arXiv:2402.14740, section 3.3 (the completion is one action).
    """
    log_ratio_BT = token_log_ratio(policy_logprobs_BT, proximal_logprobs_BT, mask_BT)
    return torch.where(mask_BT, log_ratio_BT.sum(dim=1, keepdim=True).expand_as(log_ratio_BT), 0.0)


def sequence_token_log_ratio(policy_logprobs_BT: Tensor, proximal_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """sg[log s] + policy_t - sg[policy_t]: the value of the mean log-ratio, the gradient of the token (sg: stop-gradient).

    Source: GSPO, arXiv:2507.18071, eq. 14.
    """
    mean_BT = sequence_log_ratio(policy_logprobs_BT, proximal_logprobs_BT, mask_BT).detach()
    policy_BT = torch.where(mask_BT, policy_logprobs_BT, 0.0)
    return mean_BT + (policy_BT - policy_BT.detach())


def bounded_ratio(log_ratio_BT: Tensor) -> Tensor:
    """exp of the log-ratio, its exponent bounded before ``exp`` so that value and gradient stay finite."""
    return torch.exp(torch.clamp(log_ratio_BT, -RATIO_EXPONENT_BOUND, RATIO_EXPONENT_BOUND))


def clipped_surrogate(
    log_ratio_BT: Tensor,
    advantages_BT: Tensor,
    weights_BT: Tensor,
    *,
    denominator: float,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Surrogate:
    """Clipped importance-weighted policy gradient.

        L = -(1 / denominator) * sum_bt w * min(r * A, clip(r, 1 - low, 1 + high) * A),   r = exp(log_ratio)

    With ``dual_clip`` c, the min is replaced by max(min(...), c * A) where A < 0.

    Args:
        log_ratio_BT: [B, T] nats, of a function above.
        advantages_BT: [B, T]; an outcome advantage is repeated over its completion.
        weights_BT: [B, T] weight of each token. Weight 1/length with denominator = number of completions gives the
            sequence-mean of token-means.
        denominator: of the whole optimiser batch, never of a micro-batch; > 0.

    Errors: ValueError when the denominator is not positive.
    Source: PPO, arXiv:1707.06347, eq. 7; separate bounds: DAPO, arXiv:2503.14476, eq. 8; dual clip: Ye et al.,
        arXiv:1912.09729, eq. 5.
    """
    _check(denominator)
    takes_part_BT = weights_BT != 0
    ratio_BT = bounded_ratio(torch.where(takes_part_BT, log_ratio_BT, 0.0))
    advantages_BT = torch.where(takes_part_BT, advantages_BT, 0.0)
    plain_BT = ratio_BT * advantages_BT
    clipped_BT = torch.clamp(ratio_BT, 1.0 - clip_low, 1.0 + clip_high) * advantages_BT
    objective_BT = torch.minimum(plain_BT, clipped_BT)
    is_clipped_BT = clipped_BT < plain_BT
    if dual_clip is not None:
        floor_BT = dual_clip * advantages_BT
        is_floored_BT = (advantages_BT < 0) & (objective_BT < floor_BT)
        objective_BT = torch.where(is_floored_BT, floor_BT, objective_BT)
        is_clipped_BT = is_clipped_BT | is_floored_BT
    loss = -(weights_BT * objective_BT).sum() / denominator
    return Surrogate(loss, ratio_BT.detach(), (takes_part_BT & is_clipped_BT).detach())


def weighted_likelihood(
    policy_logprobs_BT: Tensor,
    log_ratio_BT: Tensor,
    advantages_BT: Tensor,
    weights_BT: Tensor,
    *,
    denominator: float,
    clip_low: float | None,
    clip_high: float,
) -> Surrogate:
    """Clipped importance weight, held constant, on A log pi: every token keeps a gradient.

        L = -(1 / denominator) * sum_bt w * sg[clip(r, 1 - low, 1 + high)] * A * policy

    Args:
        clip_low: None sets no lower bound.

    Errors: ValueError when the denominator is not positive.
    Source: CISPO of MiniMax-M1, arXiv:2506.13585, eq. 4 and 5.
    """
    _check(denominator)
    takes_part_BT = weights_BT != 0
    ratio_BT = bounded_ratio(torch.where(takes_part_BT, log_ratio_BT, 0.0)).detach()
    bounded_BT = torch.clamp(ratio_BT, 0.0 if clip_low is None else 1.0 - clip_low, 1.0 + clip_high)
    advantages_BT = torch.where(takes_part_BT, advantages_BT, 0.0)
    policy_BT = torch.where(takes_part_BT, policy_logprobs_BT, 0.0)
    loss = -(weights_BT * bounded_BT * advantages_BT * policy_BT).sum() / denominator
    return Surrogate(loss, ratio_BT, takes_part_BT & (bounded_BT != ratio_BT))


def likelihood(policy_logprobs_BT: Tensor, advantages_BT: Tensor, weights_BT: Tensor, *, denominator: float) -> Tensor:
    """L = -(1 / denominator) * sum_bt w * A * policy.

    Errors: ValueError when the denominator is not positive.
    Source: REINFORCE, Williams (1992); with A in {0, 1} rejection sampling fine-tuning, DeepSeekMath, arXiv:2402.03300,
        appendix A.1.2.
    """
    _check(denominator)
    takes_part_BT = weights_BT != 0
    advantages_BT = torch.where(takes_part_BT, advantages_BT, 0.0)
    policy_BT = torch.where(takes_part_BT, policy_logprobs_BT, 0.0)
    return -(weights_BT * advantages_BT * policy_BT).sum() / denominator


def weighted_sum(values_BT: Tensor, weights_BT: Tensor, *, denominator: float) -> Tensor:
    """(1 / denominator) * sum_bt w * value: how a KL or an entropy enters the loss, aggregated as the objective is.

    Errors: ValueError when the denominator is not positive.
    """
    _check(denominator)
    return (weights_BT * torch.where(weights_BT != 0, values_BT, 0.0)).sum() / denominator


def clipped_value_loss(
    values_BT: Tensor,
    values_before_BT: Tensor,
    returns_BT: Tensor,
    weights_BT: Tensor,
    *,
    denominator: float,
    clip_value: float | None,
) -> tuple[Tensor, Tensor]:
    """Squared error of the critic; the worse of the value and of the value held near the one before the update.

        L = (1 / denominator) * sum_bt w * 0.5 * max((V - R)^2, (clip(V, V0 - c, V0 + c) - R)^2)

    Args:
        values_before_BT: V0, of the critic before the update (frozen).
        returns_BT: R, what the values should have been.
        clip_value: c; None leaves the clip out.

    Returns:
        The scalar loss and, detached [B, T], where the clip took the gradient away.

    Errors: ValueError when the denominator is not positive.
    Source: PPO, arXiv:1707.06347, eq. 9, with the clip of its reference implementation (OpenAI baselines, ppo2).
    """
    _check(denominator)
    takes_part_BT = weights_BT != 0
    values_BT, before_BT, returns_BT = (
        torch.where(takes_part_BT, each, 0.0) for each in (values_BT, values_before_BT, returns_BT)
    )
    error_BT = (values_BT - returns_BT) ** 2
    is_clipped_BT = torch.zeros_like(takes_part_BT)
    if clip_value is not None:
        held_BT = before_BT + torch.clamp(values_BT - before_BT, -clip_value, clip_value)
        held_error_BT = (held_BT - returns_BT) ** 2
        is_clipped_BT = takes_part_BT & (held_error_BT > error_BT) & ((values_BT - before_BT).abs() > clip_value)
        error_BT = torch.maximum(error_BT, held_error_BT)
    return (weights_BT * 0.5 * error_BT).sum() / denominator, is_clipped_BT.detach()


def _check(denominator: float) -> None:
    if not denominator > 0:
        raise ValueError(f"denominator {denominator} is not positive: there is nothing to average over")
