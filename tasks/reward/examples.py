"""What one label asks of the reward model, whatever its kind."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """Sequences to read, the positions at which each is scored, and the targets of the loss.

    The scores of a batch are one flat list: example by example, sequence by sequence, position by position. ``targets`` are
    the terms of the loss: one per pair, per completion, or per step; the loss of a batch is a mean over all of them.
    """

    label_id: str
    sequences: tuple[list[int], ...]
    positions: tuple[list[int], ...]
    targets: tuple[float, ...]
    num_tokens: tuple[int, ...]
    """Completion tokens of each sequence, after the cut: what a correlation with length is taken of."""

    @property
    def num_scores(self) -> int:
        return sum(len(positions) for positions in self.positions)


@dataclass(frozen=True)
class Judged:
    """What the scores of one example say beside its targets.

    ``logits`` and ``targets``: log-odds of an outcome and the outcome (in [0, 1]), for accuracy and calibration.
    ``scores``, ``labels`` and ``lengths``: of single completions or steps, for AUC and the correlation with length.
    """

    logits: tuple[float, ...]
    targets: tuple[float, ...]
    scores: tuple[float, ...]
    labels: tuple[float, ...]
    lengths: tuple[int, ...]


def at_the_end(sequences: Sequence[Sequence[int]]) -> tuple[list[int], ...]:
    """The last position of each sequence: where an outcome is read."""
    return tuple([len(sequence) - 1] for sequence in sequences)
