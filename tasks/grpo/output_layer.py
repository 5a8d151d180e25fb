"""The output layer and the log-softmax behind it as one operation, in chunks of tokens, forward and backward."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class SelectedLogprobs(torch.autograd.Function):
    """log softmax(z / tau) at the targets and its entropy, z = softcap * tanh((h W^T + b) / softcap) or h W^T + b.

    With p = softmax(z / tau), H its entropy and upstream gradients g (log-probability) and e (entropy):

        dz = (g (onehot - p) - e p (log p + H)) / tau,     dh = dz W,     dW = dz^T h,     db = sum dz

    One chunk of logits lives at a time: a single chunk is kept for the backward pass, several are computed again there.
    The products run in the precision of autocast; log-softmax, entropy and the sums of dW are float32 or better.

    Args (of ``apply``):
        hidden_ND, weight_VD, bias_V: of the output layer; the bias may be None.
        targets_N: int64. temperatures_N: > 0.
        softcap: of the logits, or None.
        chunk_tokens: tokens whose logits are held at once.

    Returns: log-probabilities [N] and entropies [N], nats.

    Source: the derivative of log-softmax; recomputing logits by chunks as in Cut Your Losses (arXiv:2411.09009), section 4.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperatures_N: Tensor,
        softcap: float | None,
        chunk_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        found, entropies, kept = [], [], None
        for begin in range(0, len(targets_N), chunk_tokens):
            part = slice(begin, begin + chunk_tokens)
            kept, ctx.product_dtype = _logprobs(hidden_ND[part], weight_VD, bias_V, temperatures_N[part], softcap)
            found.append(kept.gather(1, targets_N[part, None])[:, 0])
            with torch.autocast(hidden_ND.device.type, enabled=False):
                entropies.append(-torch.bmm(kept.exp()[:, None], kept[:, :, None])[:, 0, 0])
        ctx.softcap, ctx.chunk_tokens = softcap, chunk_tokens
        kept = kept if len(found) == 1 else None
        entropy_N = torch.cat(entropies)
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, targets_N, temperatures_N, entropy_N, kept)
        return torch.cat(found), entropy_N

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g_N: Tensor, e_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias_V, targets_N, temperatures_N, entropy_N, kept = ctx.saved_tensors
        wants = ctx.needs_input_grad
        dtype = ctx.product_dtype
        dh_ND = torch.empty_like(hidden_ND) if wants[0] else None
        dw_VD = torch.zeros_like(weight_VD) if wants[1] else None
        db_V = torch.zeros_like(bias_V) if wants[2] else None
        has_entropy = bool(e_N.any())
        for begin in range(0, len(targets_N), ctx.chunk_tokens):
            part = slice(begin, begin + ctx.chunk_tokens)
            temperatures, chunk = temperatures_N[part], kept
            if chunk is None:
                with torch.autocast(hidden_ND.device.type, dtype=dtype, enabled=dtype != weight_VD.dtype):
                    chunk, _ = _logprobs(hidden_ND[part], weight_VD, bias_V, temperatures, ctx.softcap)
            upstream = (g_N[part] / temperatures).to(chunk.dtype)
            dz_NV = chunk.exp()
            if has_entropy:
                of_entropy = (e_N[part] / temperatures)[:, None] * (chunk + entropy_N[part, None])
                dz_NV.mul_(-upstream[:, None] - of_entropy)
            else:
                dz_NV.mul_(-upstream[:, None])
            dz_NV.scatter_add_(1, targets_N[part, None], upstream[:, None])
            if ctx.softcap is not None:
                dz_NV.mul_(_slope_of_softcap(hidden_ND[part], weight_VD, bias_V, ctx.softcap))
            product = dz_NV.to(dtype)
            if dh_ND is not None:
                dh_ND[part] = (product @ weight_VD.to(dtype)).to(dh_ND.dtype)
            if dw_VD is not None:
                _add_product(dw_VD, product.t(), hidden_ND[part].to(dtype))
            if db_V is not None:
                db_V += dz_NV.sum(0)
        return dh_ND, dw_VD, db_V, None, None, None, None


def _logprobs(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperatures_N: Tensor, softcap: float | None
) -> tuple[Tensor, torch.dtype]:
    """[N, V] log softmax(z / temperature), float32 or better, and the precision of the product."""
    logits_NV = nn.functional.linear(hidden_ND, weight_VD, bias_V)
    dtype = logits_NV.dtype
    if dtype != torch.float64:
        logits_NV = logits_NV.float()
    if softcap is not None:
        logits_NV = logits_NV.div_(softcap).tanh_().mul_(softcap)
    return torch.log_softmax(logits_NV.div_(temperatures_N[:, None]), dim=-1), dtype


def _slope_of_softcap(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, softcap: float) -> Tensor:
    """d z / d (h W^T + b) = 1 - tanh^2."""
    logits_NV = nn.functional.linear(hidden_ND, weight_VD, bias_V)
    return 1 - torch.tanh((logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()) / softcap) ** 2


def _add_product(total_MK: Tensor, left_MN: Tensor, right_NK: Tensor) -> None:
    if total_MK.dtype == left_MN.dtype:
        total_MK.addmm_(left_MN, right_NK)
    else:
        total_MK += left_MN @ right_NK


def takes_selected_logprobs(output: nn.Module) -> bool:
    """Whether the output layer is a plain matrix in memory, called by nobody else: no adapter, no shards, no hooks."""
    is_plain = type(output) is nn.Linear and type(output.weight) is nn.Parameter
    return is_plain and not output._forward_hooks and not output._forward_pre_hooks
