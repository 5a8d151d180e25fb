"""The token ids that the reward model reads, the same in training and in scoring."""

from collections.abc import Sequence


def sequence_ids(prompt_ids: Sequence[int], completion_ids: Sequence[int], max_tokens: int) -> list[int]:
    """Prompt and completion as they were sampled, cut at ``max_tokens``.

    A finished completion ends with its own end-of-sequence id, a truncated one does not: nothing is appended here, so the
    score is always read at a token that the policy produced.
    """
    return [*prompt_ids, *completion_ids][:max_tokens]
