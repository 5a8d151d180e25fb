"""Draw tokens and their log-probabilities in one pass."""

from collections.abc import Callable

import torch
from torch import Tensor


def uniforms_of(seed: int, count: int) -> Tensor:
    """[count] float64 in [0, 1): the randomness of one completion, all of it, from its own seed.

    Drawn at once per row, so that a row's tokens do not depend on which other rows share its batch.
    """
    return torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sample(logits_BV: Tensor, uniforms_B: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling from softmax(logits / temperature).

    One uniform per row replaces a random number per vocabulary entry. The cumulative sum is taken in float64; a token
    of probability 0 is never drawn.

    Returns:
        tokens_B (int64) and their log-probabilities_B (nats, float32) under the distribution sampled from.
    """
    logprobs_BV = torch.log_softmax(logits_BV.float() / temperature, dim=-1)
    cdf_BV = logprobs_BV.exp().double().cumsum(dim=-1)
    total_B1 = cdf_BV[:, -1:]
    # Kept below the total, so that the first entry above the target exists and has a probability.
    target_B1 = torch.minimum(uniforms_B[:, None] * total_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    tokens_B1 = torch.searchsorted(cdf_BV, target_B1, right=True)
    return tokens_B1.squeeze(1), logprobs_BV.gather(1, tokens_B1).squeeze(1)


def most_likely(logits_BV: Tensor, _uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """The argmax and its log-probability (nats, float32, at temperature 1)."""
    logprobs_BV = torch.log_softmax(logits_BV.float(), dim=-1)
    logprobs_B, tokens_B = logprobs_BV.max(dim=-1)
    return tokens_B, logprobs_B


Draw = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
