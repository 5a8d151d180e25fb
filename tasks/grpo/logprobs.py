"""Log-probabilities of completion tokens under a model, without ever holding [B, T, V]."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tasks.grpo.batch import CompletionBatch, TokenSequence, completion_mask, pad
from tasks.grpo.output_layer import SelectedLogprobs, takes_selected_logprobs
from tasks.runtime.views import ModelView

CHUNK_LOGITS = 1 << 24
"""Logits held at once (16.8 M, 67 MB in float32); a chunk has this many divided by the vocabulary size tokens."""


@dataclass(frozen=True)
class TokenLogprobs:
    """[B, C] nats and entropies (nats), C the longest completion; zeros where there is no completion token."""

    logprobs_BC: Tensor
    entropy_BC: Tensor


def entropy_of(logprobs_NV: Tensor) -> Tensor:
    """[N] entropy -sum_v p log p (nats) of log-probabilities [N, V], with its gradient.

    A token that can not occur (log-probability -inf) adds exactly 0, forward and backward: it is replaced before the
    product, since 0 * -inf is NaN.
    """
    finite_NV = torch.where(torch.isinf(logprobs_NV), 0.0, logprobs_NV)
    return -(logprobs_NV.exp() * finite_NV).sum(dim=-1)


@torch.no_grad()
def detached_entropy(logprobs_NV: Tensor) -> Tensor:
    """The same without its gradient: as a metric it must not double the memory of the backward pass."""
    return entropy_of(logprobs_NV)


Entropy = Callable[[Tensor], Tensor]


def completion_logprobs(
    model: nn.Module | ModelView,
    batch: CompletionBatch,
    temperatures_B: Tensor,
    entropy: Entropy = detached_entropy,
) -> TokenLogprobs:
    """log softmax(logits / temperature) of each completion token, in float32 or better, and the entropy there.

    The logits of position t predict token t + 1, so a completion that begins at ``start`` reads hidden states from
    ``start - 1`` on. Only those positions go through the output layer, in chunks that are recomputed in the backward
    pass: memory grows with the hidden size, not with the vocabulary.

    Args:
        model: a transformers causal language model (``get_decoder``/``get_output_embeddings``).
        temperatures_B: [B] the temperature each completion was sampled at, > 0.
        entropy: ``detached_entropy`` where it is a metric, ``entropy_of`` where it has a gradient.

    Errors: ValueError for a prompt without tokens (its first completion token has nothing to be predicted from).
    """
    predicting_N = batch.predicting_N
    hidden_RTD = model.get_decoder()(**batch.inputs(), use_cache=False).last_hidden_state  # type: ignore[operator]
    mask_BC = completion_mask(batch.lengths_B)
    rows_N, columns_N = mask_BC.nonzero(as_tuple=True)
    hidden_ND = hidden_RTD.flatten(0, 1).index_select(0, predicting_N)
    logprobs_N, entropy_N = _chunked(model, hidden_ND, batch.targets_N, temperatures_B[rows_N], entropy)
    zeros_BC = torch.zeros(mask_BC.shape, dtype=logprobs_N.dtype, device=logprobs_N.device)
    return TokenLogprobs(
        zeros_BC.index_put((rows_N, columns_N), logprobs_N),
        zeros_BC.index_put((rows_N, columns_N), entropy_N),
    )


@torch.no_grad()
def check_output_layer(model: nn.Module) -> None:
    """Compare with the model's own logits on four tokens: some families scale them after the output layer.

    Errors: ValueError for a model whose log-probabilities here are not its own (a wrong ratio would look like learning).
    """
    output = model.get_output_embeddings()  # type: ignore[operator]
    ids = [index % output.weight.shape[0] for index in range(4)]
    batch = pad([TokenSequence(0, ids[:1], ids[1:])], str(output.weight.device))
    ones_B = torch.ones(1, device=output.weight.device)
    found_C = completion_logprobs(model, batch, ones_B).logprobs_BC[0]
    logits_CV = model(input_ids=batch.input_ids_BT).logits[0, :-1]
    own_C, _ = selected_logprobs_and_entropy(logits_CV, batch.input_ids_BT[0, 1:], ones_B)
    tolerance = 1e-3 if output.weight.dtype in (torch.float32, torch.float64) else 0.1
    # A model that is not finite is the update's to report, with the rows.
    if bool(((found_C - own_C).abs() > tolerance).any()):
        raise ValueError(
            f"{type(model).__name__} changes its logits after the output layer (log-probs {found_C.tolist()} against its "
            f"own {own_C.tolist()}): its ratios would be wrong. Take another model"
        )


def _chunked(
    model: nn.Module | ModelView, hidden_ND: Tensor, targets_N: Tensor, temperatures_N: Tensor, entropy: Entropy
) -> tuple[Tensor, Tensor]:
    output: Any = model.get_output_embeddings()  # type: ignore[operator]
    softcap = getattr(model.config, "final_logit_softcapping", None)
    size = max(1, CHUNK_LOGITS // output.weight.shape[0])
    if takes_selected_logprobs(output):
        found_N, entropy_N = SelectedLogprobs.apply(  # type: ignore[no-untyped-call]
            hidden_ND, output.weight, output.bias, targets_N, temperatures_N, softcap, size
        )
        return found_N, entropy_N.detach() if entropy is detached_entropy else entropy_N

    def of_chunk(hidden: Tensor, targets: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
        logits_NV = output(hidden)
        if softcap is not None:
            logits_NV = softcap * torch.tanh(logits_NV / softcap)
        return selected_logprobs_and_entropy(logits_NV, targets, temperatures, entropy)

    if len(targets_N) <= size:
        return of_chunk(hidden_ND, targets_N, temperatures_N)
    chunks = zip(*(torch.split(each, size) for each in (hidden_ND, targets_N, temperatures_N)), strict=True)
    parts = [checkpoint(of_chunk, *chunk, use_reentrant=False) for chunk in chunks]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def selected_logprobs_and_entropy(
    logits_NV: Tensor, targets_N: Tensor, temperatures_N: Tensor, entropy: Entropy = detached_entropy
) -> tuple[Tensor, Tensor]:
    """log softmax(logits / temperature) at the targets, and the entropy there, both [N], float32 or better."""
    logprobs_NV = torch.log_softmax(_at_least_float32(logits_NV) / temperatures_N[:, None], dim=-1)
    return logprobs_NV.gather(1, targets_N[:, None]).squeeze(1), entropy(logprobs_NV)


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
