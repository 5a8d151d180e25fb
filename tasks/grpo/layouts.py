"""How sequences lie in a model's input: packed behind their prompt where the model takes it, else padded."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tasks.grpo.batch import CompletionBatch, TokenSequence, micro_batches, pad
from tasks.grpo.components import Layout
from tasks.grpo.logprobs import completion_logprobs
from tasks.grpo.packing import pack, packed_micro_batches, packed_rows

log = logging.getLogger(__name__)

TOLERANCE = 1e-3
"""Nats by which two layouts of a float32 model may differ before it is said not to take the mask; rounding gives 1e-5,
a position that sees too much 0.01 and more."""
HALF_TOLERANCE = 0.1


def padded(sequences: Sequence[TokenSequence], max_tokens: int, parameter: Tensor) -> Iterator[CompletionBatch]:
    """Each prompt and completion in a row of its own, padded on the right.

    Source: every transformers model takes it.
    """
    for part in micro_batches(sequences, max_tokens):
        yield pad(part, str(parameter.device))


def packed(sequences: Sequence[TokenSequence], max_tokens: int, parameter: Tensor) -> Iterator[CompletionBatch]:
    """The completions of one prompt behind it, in one row.

    Source: the tree attention of SpecInfer, arXiv:2305.09781, section 4.
    """
    for part in packed_micro_batches(sequences, max_tokens):
        yield pack(part, str(parameter.device), parameter.dtype)


LAYOUTS: dict[Layout, Callable[[Sequence[TokenSequence], int, Tensor], Iterator[CompletionBatch]]] = {
    "packed": packed,
    "padded": padded,
}


def one_by_one(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[TokenSequence]]:
    """Each sequence by itself."""
    return [[sequence] for sequence in sequences]


UNITS: dict[Layout, Callable[[Sequence[TokenSequence], int], list[list[TokenSequence]]]] = {
    "packed": packed_rows,
    "padded": one_by_one,
}
"""What ranks share out: to cut a packed row would read its prompt once more."""


def batches_of(
    layout: Layout, model: nn.Module, sequences: Sequence[TokenSequence], max_tokens: int
) -> Iterator[CompletionBatch]:
    """The sequences in micro-batches of at most ``max_tokens`` tokens (filling included), on the model's device.

    Sequences longer than the model's sliding window are padded: the mask of a packed row has no window.
    """
    parameter = next(model.parameters())
    window = sliding_window(model.config)
    fitting = [each for each in sequences if window is None or each.num_tokens <= window]
    yield from LAYOUTS[layout](fitting, max_tokens, parameter)
    if len(fitting) < len(sequences):
        over = [each for each in sequences if window is not None and each.num_tokens > window]
        yield from padded(over, max_tokens, parameter)


def sliding_window(config: Any) -> int | None:
    """The smallest attention window of a model's layers in tokens, None when all of them see everything."""
    uses = getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None)
    return int(window) if uses and window is not None else None


@torch.no_grad()
def layout_for(model: nn.Module, wanted: Layout) -> Layout:
    """``wanted``, but "packed" only when the model gives a packed row the log-probabilities of its sequences alone, else
    "padded" and a warning: some families build their attention without the mask or the positions they are given."""
    if wanted == "padded":
        return wanted
    vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    prompt = [index % vocabulary for index in (5, 9, 3)]
    completions = ([7, 11, 4, 8], [2, 13], [6, 1, 10])
    sequences = [
        TokenSequence(row, prompt, [index % vocabulary for index in ids]) for row, ids in enumerate(completions)
    ]
    try:
        differences = [_difference(model, row, sequences) for row in range(len(sequences))]
    except (ValueError, RuntimeError, TypeError) as error:
        log.warning("%s does not take packed rows (%s); its rows are padded", type(model).__name__, error)
        return "padded"
    half = next(model.parameters()).dtype.itemsize < 4
    # NaN compares false: a model that is not finite is the update's to report, with the rows.
    if max(differences) > (HALF_TOLERANCE if half else TOLERANCE):
        log.warning(
            "%s gives packed rows other log-probabilities (by %.2g nats); its rows are padded",
            type(model).__name__,
            max(differences),
        )
        return "padded"
    return "packed"


def _difference(model: nn.Module, row: int, sequences: Sequence[TokenSequence]) -> float:
    """Nats between a sequence's log-probabilities in the packed row and alone."""
    together = next(batches_of("packed", model, sequences, 1 << 20))
    alone = next(batches_of("padded", model, [sequences[row]], 1 << 20))
    found, own = (
        completion_logprobs(model, batch, torch.ones(len(batch.rows), device=batch.lengths_B.device)).logprobs_BC
        for batch in (together, alone)
    )
    position = together.rows.index(row)
    length = int(alone.lengths_B[0])
    return float((found[position, :length] - own[0]).abs().max())
