"""How the tokens of an optimiser batch become one number: a weight per token and a denominator for the whole batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tasks.grpo.components import FixedLength, SequenceMean, TokenMean


@dataclass(frozen=True)
class Aggregation:
    """loss = (1 / denominator(lengths of the optimiser batch)) * sum_bt weights(mask)_bt * term_bt.

    ``weights``: from the [B, T] bool mask of the tokens that take part to [B, T] float64, 0 elsewhere.
    ``denominator``: from the number of tokens that take part, of every completion of the optimiser batch that has any,
    and the longest completion that sampling allows, both in tokens.
    """

    weights: Callable[[Tensor], Tensor]
    denominator: Callable[[Sequence[int], int, Any], float]


def sequence_mean_weights(mask_BT: Tensor) -> Tensor:
    """1/length on the tokens of each completion that take part; one without any weighs nothing."""
    return mask_BT.double() / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)


def token_weights(mask_BT: Tensor) -> Tensor:
    """1 on every token that takes part."""
    return mask_BT.double()


def num_completions(lengths: Sequence[int], max_new_tokens: int, config: SequenceMean) -> float:
    """B: every completion counts the same, whatever its length.

    Source: DeepSeekMath, arXiv:2402.03300, eq. 3.
    """
    del max_new_tokens, config
    return float(len(lengths))


def num_tokens(lengths: Sequence[int], max_new_tokens: int, config: TokenMean) -> float:
    """sum_b |o_b|: every token counts the same, so that a long completion weighs more.

    Source: DAPO, arXiv:2503.14476, eq. 8.
    """
    del max_new_tokens, config
    return float(sum(lengths))


def fixed_length(lengths: Sequence[int], max_new_tokens: int, config: FixedLength) -> float:
    """B * L with L the longest completion that sampling allows: a constant, no length is divided by.

    Source: Dr. GRPO, arXiv:2503.20783, section 3.2.
    """
    return float(len(lengths) * (config.length or max_new_tokens))


AGGREGATIONS: dict[type, Aggregation] = {
    SequenceMean: Aggregation(sequence_mean_weights, num_completions),
    TokenMean: Aggregation(token_weights, num_tokens),
    FixedLength: Aggregation(token_weights, fixed_length),
}
