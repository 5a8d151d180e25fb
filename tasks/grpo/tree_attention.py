"""Attention over a packed row, branch by branch: what the tree mask hides is never computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from tasks.runtime.views import ModelView

TREE = "igrpo_tree"
"""The name under which transformers' models find this attention. Without branches it is PyTorch's own ("sdpa")."""


@dataclass(frozen=True)
class Branch:
    """Positions [begin, end) of one packed row: a prompt, or a completion behind the row's first ``num_prompt`` positions.

    ``mask_11QK``: additive, over the prompt and the branch itself; None for the prompt, which is plainly causal.
    """

    begin: int
    end: int
    num_prompt: int
    mask_11QK: Tensor | None


def branches_of(num_prompt: int, lengths: Sequence[int], dtype: torch.dtype, device: str) -> list[Branch]:
    """The prompt and its completions as they lie behind one another in a row; a completion without tokens is left out.

    Query q of a completion looks at the whole prompt and at its own positions up to q.
    """
    found = [Branch(0, num_prompt, 0, None)]
    begin = num_prompt
    for length in lengths:
        if length:
            seen_QK = torch.ones(length, num_prompt + length, dtype=torch.bool, device=device).tril(num_prompt)
            mask_QK = torch.zeros(seen_QK.shape, dtype=dtype, device=device)
            mask_QK = mask_QK.masked_fill(~seen_QK, torch.finfo(dtype).min)
            found.append(Branch(begin, begin + length, num_prompt, mask_QK[None, None]))
        begin += length
    return found


def tree_attention(
    module: nn.Module,
    query_RHTD: Tensor,
    key_RHTD: Tensor,
    value_RHTD: Tensor,
    attention_mask: Tensor | None,
    *,
    branches: Sequence[Sequence[Branch]] | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """[R, T, H, D] scaled dot-product attention; with ``branches`` (one list per row) ``attention_mask`` is not looked at.

    The scores of a prompt of P positions and completions of C_i are P^2 + sum_i C_i (P + C_i) numbers, against
    (P + sum_i C_i)^2 under a dense mask. Positions outside every branch (filling) give 0.

    Args:
        settings: what transformers hands to every attention (scaling, dropout, ...), passed on as it is.

    Source: SpecInfer (arXiv:2305.09781), section 4; PyTorch's scaled_dot_product_attention for each branch.
    """
    if branches is None:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query_RHTD, key_RHTD, value_RHTD, attention_mask, **settings
        )
    num_positions = query_RHTD.shape[2]
    rows = []
    for row, of_row in enumerate(branches):
        parts = []
        for branch in of_row:
            own, prompt = slice(branch.begin, branch.end), slice(0, branch.num_prompt)
            key, value = (
                torch.cat((each[row : row + 1, :, prompt], each[row : row + 1, :, own]), dim=2)
                for each in (key_RHTD, value_RHTD)
            )
            query = query_RHTD[row : row + 1, :, own]
            parts.append(sdpa_attention_forward(module, query, key, value, branch.mask_11QK, **settings)[0])
        if num_filling := num_positions - of_row[-1].end:
            parts.append(parts[0].new_zeros(1, num_filling, *parts[0].shape[2:]))
        rows.append(torch.cat(parts, dim=1))
    return torch.cat(rows), None


AttentionInterface.register(TREE, tree_attention)
AttentionMaskInterface.register(TREE, sdpa_mask)


def attention_of(model: nn.Module | ModelView) -> str:
    """The name of a model's attention; empty when it has none."""
    return str(getattr(model.config, "_attn_implementation", None) or "")


def takes_branches(model: nn.Module | ModelView) -> bool:
    """Whether batches for this model should say where their branches are."""
    return attention_of(model) == TREE
