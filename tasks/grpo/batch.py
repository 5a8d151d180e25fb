"""Rows of token ids as padded tensors, in micro-batches of a bounded size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenSequence:
    """One prompt and completion. ``row`` is its index among the rows that were given."""

    row: int
    prompt_token_ids: Sequence[int]
    completion_token_ids: Sequence[int]

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.completion_token_ids)


class CompletionBatch(Protocol):
    """A micro-batch of B completions, however they lie in memory. N: all their tokens, sequence by sequence."""

    @property
    def rows(self) -> list[int]:
        """The sequences' row numbers."""

    @property
    def lengths_B(self) -> Tensor:
        """Tokens of each completion."""

    @property
    def predicting_N(self) -> Tensor:
        """Flat index into [rows, positions] of the input at which each completion token is predicted."""

    @property
    def targets_N(self) -> Tensor:
        """The id of each completion token."""

    def inputs(self) -> dict[str, Any]:
        """What the model is called with."""


def completion_mask(lengths_B: Tensor) -> Tensor:
    """[B, C] true on completion tokens, C the longest completion."""
    return torch.arange(int(lengths_B.max()), device=lengths_B.device) < lengths_B[:, None]


@dataclass(frozen=True)
class PaddedBatch:
    """Right-padded sequences. The completion of row b begins at ``starts_B[b]`` and has ``lengths_B[b]`` tokens.

    Masks come from these recorded lengths, never from comparing with a pad id: the pad id may be an end-of-sequence id.
    """

    rows: list[int]
    input_ids_BT: Tensor
    attention_mask_BT: Tensor
    starts_B: Tensor
    lengths_B: Tensor

    @property
    def completion_mask_BC(self) -> Tensor:
        """[B, C] true on completion tokens, C the longest completion of the batch."""
        return completion_mask(self.lengths_B)

    @property
    def predicting_N(self) -> Tensor:
        """Flat index into [B, T] of the position before each completion token.

        Errors: ValueError for a prompt without tokens (its first completion token has nothing to be predicted from).
        """
        if bool((self.starts_B < 1).any()):
            raise ValueError("a prompt has no tokens: the first completion token has nothing to be predicted from")
        rows_N, columns_N = self.completion_mask_BC.nonzero(as_tuple=True)
        return rows_N * self.input_ids_BT.shape[1] + self.starts_B[rows_N] + columns_N - 1

    @property
    def targets_N(self) -> Tensor:
        """The id of each completion token."""
        return self.input_ids_BT.flatten()[self.predicting_N + 1]

    def inputs(self) -> dict[str, Any]:
        """What the model is called with; positions count from the first token of each row."""
        return {
            "input_ids": self.input_ids_BT,
            "attention_mask": self.attention_mask_BT,
            "position_ids": (self.attention_mask_BT.cumsum(dim=1) - 1).clamp(min=0),
        }


def pad(sequences: Sequence[TokenSequence], device: str) -> PaddedBatch:
    """The sequences as one batch, padded on the right with id 0 (attention leaves the padding out)."""
    longest = max(sequence.num_tokens for sequence in sequences)
    input_ids_BT = torch.zeros(len(sequences), longest, dtype=torch.long)
    attention_mask_BT = torch.zeros(len(sequences), longest, dtype=torch.long)
    for index, sequence in enumerate(sequences):
        ids = [*sequence.prompt_token_ids, *sequence.completion_token_ids]
        input_ids_BT[index, : len(ids)] = torch.tensor(ids)
        attention_mask_BT[index, : len(ids)] = 1
    return PaddedBatch(
        rows=[sequence.row for sequence in sequences],
        input_ids_BT=input_ids_BT.to(device),
        attention_mask_BT=attention_mask_BT.to(device),
        starts_B=torch.tensor([len(sequence.prompt_token_ids) for sequence in sequences], device=device),
        lengths_B=torch.tensor([len(sequence.completion_token_ids) for sequence in sequences], device=device),
    )


def micro_batches(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[TokenSequence]]:
    """Cut into batches of at most ``max_tokens`` padded tokens, longest sequences first, so that padding is small.

    A sequence that is longer than ``max_tokens`` by itself forms a batch of its own.
    """
    batches: list[list[TokenSequence]] = []
    for sequence in sorted(sequences, key=lambda each: (-each.num_tokens, each.row)):
        longest = batches[-1][0].num_tokens if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(sequence)
        else:
            batches.append([sequence])
    return batches
