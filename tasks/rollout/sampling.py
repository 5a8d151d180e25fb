"""Draw tokens and their log-probabilities in one pass."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 256
"""Vocabulary entries summed together: about the square root of a large vocabulary, and whole vector registers."""


def uniforms_of(seed: int, count: int) -> list[float]:
    """``count`` numbers in [0, 1), float64: the randomness of one completion, all of it, from its own seed.

    Drawn at once per row, so that a row's tokens do not depend on which other rows share its batch.
    """
    drawn = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn.tolist()  # type: ignore[no-any-return]


def sample(logits_BV: Tensor, uniforms_B: Sequence[float], temperature: float) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling from softmax(logits / temperature). The logits are overwritten.

        w_v = exp((logits_v - max) / temperature),   W = sum_v w_v
        token = the first v with w_0 + ... + w_v > u W,   log-probability = log w_token - log W

    One uniform per row replaces a random number per vocabulary entry. The sum is taken over blocks of ``BLOCK`` entries
    first, then within the block that the target falls into, so that only [B, V / BLOCK + BLOCK] numbers are accumulated,
    in float64. A token of weight 0 is never drawn.

    Args:
        logits_BV: [B, V], any floating type.
        uniforms_B: B numbers in [0, 1).

    Returns:
        tokens_B (int64) and their log-probabilities_B (nats, float64) under the distribution sampled from; NaN where the
        logits hold one.
    Source: inversion, Devroye, Non-Uniform Random Variate Generation (1986), section III.2.
    """
    weights_BV = logits_BV.float()
    weights_BV.sub_(weights_BV.amax(dim=-1, keepdim=True))
    if temperature != 1.0:
        weights_BV.div_(temperature)
    weights_BV.exp_()
    size = BLOCK if weights_BV.shape[1] > 2 * BLOCK else weights_BV.shape[1]
    if missing := -weights_BV.shape[1] % size:
        weights_BV = pad(weights_BV, (0, missing))
    blocks_BNS = weights_BV.view(len(weights_BV), -1, size)
    sums_BN = blocks_BNS.sum(dim=-1).double().cumsum(dim=-1)
    uniforms_B1 = torch.as_tensor(uniforms_B, dtype=torch.float64, device=weights_BV.device)[:, None]
    block_B1 = _first_above(sums_BN, uniforms_B1 * sums_BN[:, -1:])
    before_B1 = torch.where(block_B1 > 0, sums_BN.gather(1, (block_B1 - 1).clamp(min=0)), 0.0)
    found_BS = blocks_BNS[torch.arange(len(weights_BV), device=weights_BV.device), block_B1.squeeze(1)].double()
    place_B1 = _first_above(found_BS.cumsum(dim=-1), uniforms_B1 * sums_BN[:, -1:] - before_B1)
    logprobs_B1 = found_BS.gather(1, place_B1).log() - sums_BN[:, -1:].log()
    return (block_B1 * size + place_B1).squeeze(1), logprobs_B1.squeeze(1)


def _first_above(cumulative_BN: Tensor, target_B1: Tensor) -> Tensor:
    """[B, 1] the first entry above the target, which is kept below the total, so that the entry exists and adds something."""
    total_B1 = cumulative_BN[:, -1:]
    below_B1 = torch.minimum(target_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    return torch.searchsorted(cumulative_BN, below_B1, right=True).clamp(max=cumulative_BN.shape[1] - 1)


def most_likely(logits_BV: Tensor, _uniforms_B: Sequence[float]) -> tuple[Tensor, Tensor]:
    """The argmax and its log-probability (nats, at temperature 1)."""
    logits_BV = logits_BV.float()
    highest_B, tokens_B = logits_BV.max(dim=-1)
    return tokens_B, highest_B - logits_BV.logsumexp(dim=-1)


Draw = Callable[[Tensor, Sequence[float]], tuple[Tensor, Tensor]]
