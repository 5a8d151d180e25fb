"""How sequences lie in a model's input: packed behind their prompt where the model takes it, else padded."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import nn

from tasks.grpo.batch import CompletionBatch, TokenSequence, micro_batches, pad
from tasks.grpo.components import Layout
from tasks.grpo.logprobs import completion_logprobs
from tasks.grpo.packing import branched_micro_batches, pack, pack_branches, packed_micro_batches, packed_rows
from tasks.grpo.tree_attention import TREE, attention_of, takes_branches
from tasks.runtime.views import ModelView

Attention = Literal["branches", "mask"]
log = logging.getLogger(__name__)

TOLERANCE = 1e-3
"""Nats by which two layouts of a float32 model may differ before it is said not to take the mask; rounding gives 1e-5,
a position that sees too much 0.01 and more."""
HALF_TOLERANCE = 0.1


def padded(
    sequences: Sequence[TokenSequence], max_tokens: int, model: nn.Module | ModelView
) -> Iterator[CompletionBatch]:
    """Each prompt and completion in a row of its own, padded on the right.

    Source: every transformers model takes it.
    """
    for part in micro_batches(sequences, max_tokens):
        yield pad(part, str(next(model.parameters()).device))


def packed(
    sequences: Sequence[TokenSequence], max_tokens: int, model: nn.Module | ModelView
) -> Iterator[CompletionBatch]:
    """The completions of one prompt behind it, in one row; with its branches where the model's attention asks for them.

    Source: the tree attention of SpecInfer, arXiv:2305.09781, section 4.
    """
    parameter = next(model.parameters())
    if takes_branches(model):
        for part in branched_micro_batches(sequences, max_tokens):
            yield pack_branches(part, str(parameter.device), parameter.dtype)
    else:
        for part in packed_micro_batches(sequences, max_tokens):
            yield pack(part, str(parameter.device), parameter.dtype)


LAYOUTS: dict[Layout, Callable[[Sequence[TokenSequence], int, nn.Module | ModelView], Iterator[CompletionBatch]]] = {
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
    layout: Layout, model: nn.Module | ModelView, sequences: Sequence[TokenSequence], max_tokens: int
) -> Iterator[CompletionBatch]:
    """The sequences in micro-batches of at most ``max_tokens`` tokens (filling included), on the model's device.

    Sequences longer than the model's sliding window are padded: the mask of a packed row has no window.
    """
    window = sliding_window(model.config)
    fitting = [each for each in sequences if window is None or each.num_tokens <= window]
    yield from LAYOUTS[layout](fitting, max_tokens, model)
    if len(fitting) < len(sequences):
        over = [each for each in sequences if window is not None and each.num_tokens > window]
        yield from padded(over, max_tokens, model)


def sliding_window(config: Any) -> int | None:
    """The smallest attention window of a model's layers in tokens, None when all of them see everything."""
    uses = getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None)
    return int(window) if uses and window is not None else None


@torch.no_grad()
def layout_for(model: nn.Module, wanted: Layout, attention: Attention = "branches") -> Layout:
    """``wanted``, but "packed" only when the model gives a packed row the log-probabilities of its sequences alone, else
    "padded" and a warning: some families build their attention without the mask or the positions they are given.

    A model whose attention is PyTorch's own is given ``tree_attention`` where that passes the same check; without
    branches the two are one, so that whoever else uses the model sees no change.

    Args:
        attention: "mask" keeps the dense mask: code compiled for it fits every batch, code for branches only one.
    """
    if wanted == "padded":
        return wanted
    own = attention_of(model)
    if own == "sdpa" and attention == "branches":
        model.set_attn_implementation(TREE)  # type: ignore[operator]
        if attention_of(model) == TREE and not fault_of_packed_rows(model):
            return "packed"
        model.set_attn_implementation(own)  # type: ignore[operator]
    if fault := fault_of_packed_rows(model):
        log.warning("%s %s; its rows are padded", type(model).__name__, fault)
        return "padded"
    return "packed"


def share_attention(model: nn.Module, other: nn.Module | ModelView) -> None:
    """Give ``other``, of the same class, the attention that ``model`` was found to take."""
    if takes_branches(model) and attention_of(other) == "sdpa" and type(other) is type(model):
        other.set_attn_implementation(TREE)  # type: ignore[operator]


@torch.no_grad()
def fault_of_packed_rows(model: nn.Module) -> str:
    """What is wrong with packed rows under this model, as the end of a sentence; empty when nothing is."""
    vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    prompt = [index % vocabulary for index in (5, 9, 3)]
    completions = ([7, 11, 4, 8], [2, 13], [6, 1, 10])
    sequences = [
        TokenSequence(row, prompt, [index % vocabulary for index in ids]) for row, ids in enumerate(completions)
    ]
    try:
        differences = [_difference(model, row, sequences) for row in range(len(sequences))]
    except (ValueError, RuntimeError, TypeError) as error:
        return f"does not take packed rows ({error})"
    half = next(model.parameters()).dtype.itemsize < 4
    # NaN compares false: a model that is not finite is the update's to report, with the rows.
    if max(differences) > (HALF_TOLERANCE if half else TOLERANCE):
        return f"gives packed rows other log-probabilities (by {max(differences):.2g} nats)"
    return ""


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
