"""Rollout correction: the engine that sampled and the trainer that learns compute slightly different probabilities."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.grpo.components import Masking, NoCorrection, Truncation

LOG_WEIGHT_BOUND = 20.0
"""Largest |log-weight| (nats) whose exponential is taken."""


@dataclass(frozen=True)
class Corrected:
    """Of one completion, [T]: the factor of each token's policy term, which tokens take part, and the raw weight."""

    factor_T: Tensor
    takes_part_T: Tensor
    raw_T: Tensor


def neutral(log_weight_T: Tensor, is_known_T: Tensor, config: NoCorrection) -> Corrected:
    """Factor 1 everywhere.

    Source: ours; the ratio is then taken to the engine's numbers, as PPO's is to the policy that sampled.
    """
    del config  # no knobs
    return Corrected(torch.ones_like(log_weight_T), torch.ones_like(is_known_T), torch.exp(log_weight_T))


def truncate(log_weight_T: Tensor, is_known_T: Tensor, config: Truncation) -> Corrected:
    """min(w, cap), w = exp(trainer - engine) of each token, or of the completion as a whole (the product over its tokens).

    Source: truncated importance sampling, Ionides (2008); for engine mismatch: Yao et al. (2025), "Your efficient RL
    framework secretly brings you off-policy RL training".
    """
    raw_T = _raw(log_weight_T, is_known_T, config.kind)
    return Corrected(raw_T.clamp(max=config.cap), torch.ones_like(is_known_T), raw_T)


def mask(log_weight_T: Tensor, is_known_T: Tensor, config: Masking) -> Corrected:
    """w where low <= w <= high, and out of the loss and its denominator elsewhere; of each token or of the completion.

    Source: IcePop, Ling team (2025), "Small leak can sink a great ship"; rejection by completion as in verl's rollout
    correction.
    """
    raw_T = _raw(log_weight_T, is_known_T, config.kind)
    inside_T = (raw_T >= config.low) & (raw_T <= config.high)
    return Corrected(torch.where(inside_T, raw_T, 1.0), inside_T, raw_T)


def _raw(log_weight_T: Tensor, is_known_T: Tensor, kind: str) -> Tensor:
    log_weight_T = torch.where(is_known_T, log_weight_T, 0.0)  # a token whose engine log-prob is not known is neutral
    if kind.startswith("sequence"):
        log_weight_T = log_weight_T.sum().expand_as(log_weight_T)
    return torch.exp(log_weight_T.clamp(-LOG_WEIGHT_BOUND, LOG_WEIGHT_BOUND))


CORRECTIONS: dict[type, Callable[[Tensor, Tensor, Any], Corrected]] = {
    NoCorrection: neutral,
    Truncation: truncate,
    Masking: mask,
}
