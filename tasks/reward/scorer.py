"""Scores of completions and pairs under a reward model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.reward.encoding import sequence_ids
from tasks.reward.head import RewardModel
from tasks.runtime.optimiser import NonFinite

Row = Mapping[str, Any]


def score_rows(model: RewardModel, rows: Sequence[Row], *, micro_batch_tokens: int, max_tokens: int) -> list[float]:
    """The score (log-odds, float32) of every completions row, in order."""
    sequences = [sequence_ids(row["prompt_token_ids"], row["completion_token_ids"], max_tokens) for row in rows]
    return score_sequences(model, sequences, micro_batch_tokens=micro_batch_tokens)


@torch.no_grad()
def score_sequences(model: RewardModel, sequences: Sequence[Sequence[int]], *, micro_batch_tokens: int) -> list[float]:
    """The score of every sequence, in order; sorted by length into batches of at most ``micro_batch_tokens``."""
    model.eval()
    scores = [0.0] * len(sequences)
    for batch in length_batches([len(sequence) for sequence in sequences], micro_batch_tokens):
        found = model(*padded([sequences[index] for index in batch], model.device)).tolist()
        for index, score in zip(batch, found, strict=True):
            scores[index] = score
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


def pair_metrics(
    model: RewardModel, pairs: Sequence[Row], *, micro_batch_tokens: int, max_tokens: int
) -> dict[str, float]:
    """accuracy: share of pairs whose chosen completion scores higher (a tie counts half); auc: over all chosen against
    all rejected scores. Missing when there are no pairs.

    Raises:
        NonFinite: a score is not a finite number; names the pair. Such a model may not be published.
    """
    if not pairs:
        return {}
    sequences = [
        sequence_ids(row["prompt_token_ids"], row[side], max_tokens)
        for side in ("chosen_token_ids", "rejected_token_ids")
        for row in pairs
    ]
    scores = score_sequences(model, sequences, micro_batch_tokens=micro_batch_tokens)
    chosen, rejected = scores[: len(pairs)], scores[len(pairs) :]
    for row, high, low in zip(pairs, chosen, rejected, strict=True):
        if not (math.isfinite(high) and math.isfinite(low)):
            raise NonFinite(f"pair {row['pair_id']} has the scores {high} and {low}")
    wins = [_win(high, low) for high, low in zip(chosen, rejected, strict=True)]
    return {"accuracy": sum(wins) / len(wins), "auc": auc(chosen, rejected), "num_pairs": float(len(pairs))}


def _win(high: float, low: float) -> float:
    return 1.0 if high > low else 0.5 if high == low else 0.0


def auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The chance that a positive scores above a negative, ties counting half: (rank sum - n(n+1)/2) / (n m).

    Source: Mann and Whitney (1947); Hanley and McNeil (1982).
    """
    if not positive or not negative:
        raise ValueError("AUC needs at least one positive and one negative")
    # A NaN equals nothing, itself included: it has no rank.
    if bad := [score for score in [*positive, *negative] if math.isnan(score)]:
        raise ValueError(f"{len(bad)} of the scores are NaN and have no rank")
    pooled = sorted([*positive, *negative])
    rank: dict[float, float] = {}
    begin = 0
    while begin < len(pooled):
        end = begin
        while end < len(pooled) and pooled[end] == pooled[begin]:
            end += 1
        rank[pooled[begin]] = (begin + 1 + end) / 2.0
        begin = end
    n, m = len(positive), len(negative)
    return (sum(rank[score] for score in positive) - n * (n + 1) / 2.0) / (n * m)
