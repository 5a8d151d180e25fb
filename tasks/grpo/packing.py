"""Completions of one prompt packed behind it: the prompt is read once, whatever the size of its group."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.grpo.batch import TokenSequence
from tasks.grpo.tree_attention import Branches, branches_of, bundled

MAX_ROW_TOKENS = 1024
"""Tokens of a packed row, unless one sequence alone is longer: attention is computed between all of them and masked after
that, so a row's cost grows with its square."""

PackedRow = Sequence[TokenSequence]
"""Sequences with one prompt."""


@dataclass(frozen=True)
class PackedBatch:
    """R packed rows of T positions: a prompt, then completions that each see the prompt and themselves alone.

    ``rows``: the B sequences, in the order of the packed rows. ``position_ids_RT`` begin again behind the prompt for
    every completion. ``attention_mask_R1TT``: additive, 0 where position q may look at position k.
    ``predicting_N`` and ``targets_N``: for each completion token, sequence by sequence, the flat index into [R, T] of the
    position that predicts it, and its id; the first token of every completion is predicted by the prompt's last.

    Source: the tree attention of SpecInfer (arXiv:2305.09781), figure 4, with one branch per completion.
    """

    rows: list[int]
    lengths_B: Tensor
    input_ids_RT: Tensor
    position_ids_RT: Tensor
    attention_mask_R1TT: Tensor
    predicting_N: Tensor
    targets_N: Tensor

    def inputs(self) -> dict[str, Any]:
        """What the model is called with."""
        return {
            "input_ids": self.input_ids_RT,
            "attention_mask": self.attention_mask_R1TT,
            "position_ids": self.position_ids_RT,
        }


@dataclass(frozen=True)
class BranchedBatch(PackedBatch):
    """Packed rows for a model with ``tree_attention``, one behind another in a single row (R is 1) without filling.

    Its mask is a single 0: four dimensions tell the model that there is nothing to make, and the attention looks at the
    branches instead."""

    branches: Branches

    def inputs(self) -> dict[str, Any]:
        return super().inputs() | {"branches": self.branches}


def pack_branches(packed: Sequence[PackedRow], device: str, dtype: torch.dtype) -> BranchedBatch:
    """Like ``pack``, with the branches of each row in place of the mask."""
    *starts, total = itertools.accumulate((num_packed_tokens(row) for row in packed), initial=0)
    found = _laid_out(
        packed, starts, (1, total), device, lambda numbers_RT: numbers_RT.new_zeros(1, 1, 1, 1, dtype=dtype)
    )
    lengths = [[len(each.completion_token_ids) for each in row] for row in packed]
    branches = [branches_of(len(row[0].prompt_token_ids), of_row) for row, of_row in zip(packed, lengths, strict=True)]
    return BranchedBatch(**vars(found), branches=bundled(list(zip(starts, branches, strict=True)), dtype, device))


def pack(packed: Sequence[PackedRow], device: str, dtype: torch.dtype) -> PackedBatch:
    """The packed rows as one batch, shorter ones filled up with positions that see themselves alone.

    Args:
        dtype: of the mask, the model's own.

    Errors: ValueError for a prompt without tokens, or sequences of different prompts in one row.
    """
    longest = max(num_packed_tokens(row) for row in packed)
    starts = [number * longest for number in range(len(packed))]
    return _laid_out(
        packed, starts, (len(packed), longest), device, lambda numbers_RT: tree_mask(numbers_RT, dtype)[:, None]
    )


def _laid_out(
    packed: Sequence[PackedRow],
    starts: Sequence[int],
    shape: tuple[int, int],
    device: str,
    mask_of: Callable[[Tensor], Tensor],
) -> PackedBatch:
    """The packed rows in R x T positions, each from its flat position in ``starts`` on."""
    num_positions = shape[0] * shape[1]
    input_ids_N, position_ids_N = torch.zeros(2, num_positions, dtype=torch.long)
    branches_N = torch.full((num_positions,), -1)  # 0: prompt, 1..: completions, -1: filling
    predicting, targets = [], []
    for start, sequences in zip(starts, packed, strict=True):
        prompt = list(sequences[0].prompt_token_ids)
        if not prompt:
            raise ValueError("a prompt has no tokens: the first completion token has nothing to be predicted from")
        begin = start + len(prompt)
        last_of_prompt = begin - 1
        input_ids_N[start:begin] = torch.tensor(prompt)
        position_ids_N[start:begin] = torch.arange(len(prompt))
        branches_N[start:begin] = 0
        for branch, sequence in enumerate(sequences, 1):
            if list(sequence.prompt_token_ids) != prompt:
                raise ValueError(f"rows {sequences[0].row} and {sequence.row} have different prompts")
            ids = torch.tensor(sequence.completion_token_ids, dtype=torch.long)
            end = begin + len(ids)
            input_ids_N[begin:end] = ids
            position_ids_N[begin:end] = torch.arange(len(prompt), len(prompt) + len(ids))
            branches_N[begin:end] = branch
            first = [last_of_prompt] if len(ids) else []
            predicting.append(torch.tensor([*first, *range(begin, end - 1)], dtype=torch.long))
            targets.append(ids)
            begin = end
    sequences = [sequence for row in packed for sequence in row]
    return PackedBatch(
        rows=[sequence.row for sequence in sequences],
        lengths_B=torch.tensor([len(sequence.completion_token_ids) for sequence in sequences], device=device),
        input_ids_RT=input_ids_N.view(shape).to(device),
        position_ids_RT=position_ids_N.view(shape).to(device),
        attention_mask_R1TT=mask_of(branches_N.view(shape).to(device)),
        predicting_N=torch.cat(predicting).to(device),
        targets_N=torch.cat(targets).to(device),
    )


def tree_mask(branches_RT: Tensor, dtype: torch.dtype) -> Tensor:
    """[R, T, T] additive mask: 0 where position q may look at position k, else the least number of ``dtype``.

    q looks at k <= q of the prompt (branch 0) or of its own branch. Filling (branch -1) looks at filling: a position that
    looked at nothing would be NaN.
    """
    positions_T = torch.arange(branches_RT.shape[1], device=branches_RT.device)
    causal_TT = positions_T[:, None] >= positions_T[None, :]
    same_RTT = branches_RT[:, :, None] == branches_RT[:, None, :]
    prompt_RTT = (branches_RT == 0)[:, None, :] & (branches_RT >= 0)[:, :, None]
    seen_RTT = causal_TT & (same_RTT | prompt_RTT)
    return torch.zeros(seen_RTT.shape, dtype=dtype, device=seen_RTT.device).masked_fill(
        ~seen_RTT, torch.finfo(dtype).min
    )


def num_packed_tokens(row: PackedRow) -> int:
    """Tokens of the prompt and of all its completions."""
    return len(row[0].prompt_token_ids) + sum(len(sequence.completion_token_ids) for sequence in row)


def packed_rows(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[TokenSequence]]:
    """Sequences with equal prompts together, in rows of at most ``max_tokens`` and ``MAX_ROW_TOKENS`` tokens.

    Longest completions first, each into the first row of its prompt that has room; one that is too long for any row has
    a row of its own.
    """
    limit = min(max_tokens, MAX_ROW_TOKENS)
    of_prompt: dict[tuple[int, ...], list[list[TokenSequence]]] = {}
    for sequence in sorted(sequences, key=lambda each: (-each.num_tokens, each.row)):
        rows = of_prompt.setdefault(tuple(sequence.prompt_token_ids), [])
        added = len(sequence.completion_token_ids)
        room = next((row for row in rows if num_packed_tokens(row) + added <= limit), None)
        if room is None:
            rows.append([sequence])
        else:
            room.append(sequence)
    return [row for rows in of_prompt.values() for row in rows]


def packed_micro_batches(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[list[TokenSequence]]]:
    """Packed rows in batches of at most ``max_tokens`` tokens, filling included; longest rows first.

    A row that is longer than ``max_tokens`` by itself forms a batch of its own.
    """
    batches: list[list[list[TokenSequence]]] = []
    for row in sorted(packed_rows(sequences, max_tokens), key=lambda each: (-num_packed_tokens(each), each[0].row)):
        longest = num_packed_tokens(batches[-1][0]) if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def branched_micro_batches(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[list[TokenSequence]]]:
    """Packed rows in batches of at most ``max_tokens`` tokens without any filling; longest rows first.

    A row that is longer than ``max_tokens`` by itself forms a batch of its own.
    """
    batches: list[list[list[TokenSequence]]] = []
    num_tokens = 0
    for row in sorted(packed_rows(sequences, max_tokens), key=lambda each: (-num_packed_tokens(each), each[0].row)):
        num_tokens += num_packed_tokens(row)
        if batches and num_tokens <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
            num_tokens = num_packed_tokens(row)
    return batches
