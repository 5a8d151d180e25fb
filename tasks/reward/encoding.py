"""The token ids that the reward model reads, the same in training and in scoring."""

from collections.abc import Mapping, Sequence
from typing import Any


def sequence_ids(prompt_ids: Sequence[int], completion_ids: Sequence[int], max_tokens: int) -> list[int]:
    """Prompt and completion as they were sampled, cut at ``max_tokens``.

    A finished completion ends with its own end-of-sequence id, a truncated one does not: nothing is appended here, so the
    score is always read at a token that the policy produced.
    """
    return [*prompt_ids, *completion_ids][:max_tokens]


def num_cut(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], max_tokens: int) -> int:
    """How many sequences, over all ``columns`` of all ``rows``, lose tokens to the cut at ``max_tokens``."""
    return sum(len(row["prompt_token_ids"]) + len(row[column]) > max_tokens for row in rows for column in columns)
