"""Scores of completions under a reward model."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.reward.encoding import sequence_ids
from tasks.reward.examples import Example, at_the_end
from tasks.reward.head import RewardModel

Row = Mapping[str, Any]


def score_rows(model: RewardModel, rows: Sequence[Row], *, micro_batch_tokens: int, max_tokens: int) -> list[float]:
    """The calibrated score of every completions row, in order: the log-odds that the model gives at its last token, divided
    by the model's temperature."""
    sequences = [sequence_ids(row["prompt_token_ids"], row["completion_token_ids"], max_tokens) for row in rows]
    found = score_sequences(model, sequences, at_the_end(sequences), micro_batch_tokens=micro_batch_tokens)
    return [score / model.temperature for (score,) in found]


def score_examples(
    model: RewardModel, examples: Sequence[Example], *, micro_batch_tokens: int
) -> list[tuple[float, ...]]:
    """The scores that every example asks for, in its own order; not divided by the temperature, as in training."""
    found = iter(
        score_sequences(
            model,
            [sequence for example in examples for sequence in example.sequences],
            [positions for example in examples for positions in example.positions],
            micro_batch_tokens=micro_batch_tokens,
        )
    )
    return [tuple(score for _ in example.sequences for score in next(found)) for example in examples]


@torch.no_grad()
def score_sequences(
    model: RewardModel,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    *,
    micro_batch_tokens: int,
) -> list[list[float]]:
    """The scores at ``positions`` of every sequence, in order; sorted by length into batches of at most
    ``micro_batch_tokens``."""
    model.eval()
    scores: list[list[float]] = [[] for _ in sequences]
    for batch in length_batches([len(sequence) for sequence in sequences], micro_batch_tokens):
        input_ids_BT, lengths_B = padded([sequences[index] for index in batch], model.device)
        found = iter(model.scores_at(input_ids_BT, lengths_B, [positions[index] for index in batch]).tolist())
        for index in batch:
            scores[index] = [next(found) for _ in positions[index]]
    return scores


def length_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices in batches of at most ``max_tokens`` padded tokens, longest first; one longer than that stands alone."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda each: (-lengths[each], each)):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def padded(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """input_ids_BT padded on the right, and lengths_B. An empty sequence has no last token and is a ValueError."""
    lengths = [len(sequence) for sequence in sequences]
    if 0 in lengths:
        raise ValueError(f"sequence {lengths.index(0)} of the batch is empty: there is no token to read a score at")
    input_ids_BT = torch.zeros(len(sequences), max(lengths), dtype=torch.long)
    for index, sequence in enumerate(sequences):
        input_ids_BT[index, : len(sequence)] = torch.tensor(sequence)
    return input_ids_BT.to(device), torch.tensor(lengths, device=device)
