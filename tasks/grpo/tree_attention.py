"""Attention over packed rows by branches: what the tree mask hides is hardly ever computed."""

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


MIN_FILLED_SHARE = 0.5
"""Share of the largest branch's scores that a branch must have to be computed beside it: filling costs at most as much again."""


@dataclass(frozen=True)
class Branch:
    """Positions [begin, end) of one packed row: a prompt, or a completion behind the row's first ``num_prompt`` positions."""

    begin: int
    end: int
    num_prompt: int

    @property
    def num_queries(self) -> int:
        return self.end - self.begin

    @property
    def num_keys(self) -> int:
        return self.num_prompt + self.num_queries

    def seen(self, num_queries: int, num_keys: int) -> Tensor:
        """[Q, K] bool, filled up to a bundle's size: query q looks at the prompt and at its own positions up to q.

        A query that is only filling looks at every key: one that looked at nothing would be NaN.
        """
        seen_QK = torch.ones(num_queries, num_keys, dtype=torch.bool)
        seen_QK[: self.num_queries, : self.num_keys].tril_(self.num_prompt)
        seen_QK[: self.num_queries, self.num_keys :] = False
        return seen_QK


def branches_of(num_prompt: int, lengths: Sequence[int]) -> list[Branch]:
    """The prompt and its completions as they lie behind one another in a row; a completion without tokens is left out."""
    found = [Branch(0, num_prompt, 0)]
    begin = num_prompt
    for length in lengths:
        if length:
            found.append(Branch(begin, begin + length, num_prompt))
        begin += length
    return found


@dataclass(frozen=True)
class Bundle:
    """B branches of similar size, computed together: one product for many small ones.

    ``queries_BQ``, ``keys_BK``: positions; a branch's keys are its prompt's positions, then its own. Filling
    has index 0. ``mask_B1QK``: additive.
    """

    queries_BQ: Tensor
    keys_BK: Tensor
    mask_B1QK: Tensor


@dataclass(frozen=True)
class Branches:
    """The branches of N positions without any filling. ``places_N``: where the answer of each position stands among those of
    all bundles, one after another."""

    bundles: list[Bundle]
    places_N: Tensor


def bundled(rows: Sequence[tuple[int, Sequence[Branch]]], dtype: torch.dtype, device: str) -> Branches:
    """The branches of packed rows that lie behind one another, those of similar size together.

    Args:
        rows: of each, the position at which it begins and its branches.
        dtype: of the masks, the model's own.
    """
    waiting = [(start, branch) for start, branches in rows for branch in branches]
    num_positions = max(start + branch.end for start, branch in waiting)
    waiting.sort(key=lambda each: (-each[1].num_queries * each[1].num_keys, each[0], each[1].begin))
    bundles: list[Bundle] = []
    places_N = torch.full((num_positions,), -1)
    num_answers = 0
    while waiting:
        largest = waiting[0][1].num_queries * waiting[0][1].num_keys
        least = MIN_FILLED_SHARE * largest
        size = sum(branch.num_queries * branch.num_keys >= least for _, branch in waiting)
        members, waiting = waiting[:size], waiting[size:]
        bundle = _bundle(members, dtype, device)
        num_queries = bundle.queries_BQ.shape[1]
        for index, (start, branch) in enumerate(members):
            place = num_answers + index * num_queries
            places_N[start + branch.begin : start + branch.end] = torch.arange(place, place + branch.num_queries)
        num_answers += bundle.queries_BQ.numel()
        bundles.append(bundle)
    assert int(places_N.min()) >= 0, "a position belongs to no branch"
    return Branches(bundles, places_N.to(device))


def _bundle(members: Sequence[tuple[int, Branch]], dtype: torch.dtype, device: str) -> Bundle:
    """Branches with the flat position at which their row begins."""
    num_queries = max(branch.num_queries for _, branch in members)
    num_keys = max(branch.num_keys for _, branch in members)
    queries_BQ = torch.zeros(len(members), num_queries, dtype=torch.long)
    keys_BK = torch.zeros(len(members), num_keys, dtype=torch.long)
    for index, (start, branch) in enumerate(members):
        own = torch.arange(start + branch.begin, start + branch.end)
        queries_BQ[index, : len(own)] = own
        keys_BK[index, : branch.num_keys] = torch.cat((torch.arange(start, start + branch.num_prompt), own))
    seen_BQK = torch.stack([branch.seen(num_queries, num_keys) for _, branch in members])
    mask_BQK = torch.zeros(seen_BQK.shape, dtype=dtype).masked_fill(~seen_BQK, torch.finfo(dtype).min)
    return Bundle(queries_BQ.to(device), keys_BK.to(device), mask_BQK[:, None].to(device))


def tree_attention(
    module: nn.Module,
    query_RHTD: Tensor,
    key_RHTD: Tensor,
    value_RHTD: Tensor,
    attention_mask: Tensor | None,
    *,
    branches: Branches | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """[R, T, H, D] scaled dot-product attention; with ``branches`` (then R is 1) ``attention_mask`` is not looked at.

    The scores of a prompt of P positions and completions of C_i are P^2 + sum_i C_i (P + C_i) numbers (at most twice that
    with filling), against (P + sum_i C_i)^2 under a dense mask.

    Args:
        settings: what transformers hands to every attention (scaling, dropout, ...), passed on as it is.

    Source: SpecInfer (arXiv:2305.09781), section 4; PyTorch's scaled_dot_product_attention for each bundle.
    """
    if branches is None:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query_RHTD, key_RHTD, value_RHTD, attention_mask, **settings
        )
    query_NHD, key_NHD, value_NHD = (each.squeeze(0).transpose(0, 1) for each in (query_RHTD, key_RHTD, value_RHTD))
    answers = []
    for bundle in branches.bundles:
        query_BHQD = _taken(query_NHD, bundle.queries_BQ)
        key_BHKD, value_BHKD = (_taken(each, bundle.keys_BK) for each in (key_NHD, value_NHD))
        answer_BQHD = sdpa_attention_forward(module, query_BHQD, key_BHKD, value_BHKD, bundle.mask_B1QK, **settings)[0]
        answers.append(answer_BQHD.flatten(0, 1))
    return torch.cat(answers).index_select(0, branches.places_N)[None], None


def _taken(each_NHD: Tensor, indices_BM: Tensor) -> Tensor:
    """[B, H, M, D] of [N, H, D]."""
    return each_NHD.index_select(0, indices_BM.flatten()).view(*indices_BM.shape, *each_NHD.shape[1:]).transpose(1, 2)


AttentionInterface.register(TREE, tree_attention)
AttentionMaskInterface.register(TREE, sdpa_mask)


def attention_of(model: nn.Module | ModelView) -> str:
    """The name of a model's attention; empty when it has none."""
    return str(getattr(model.config, "_attn_implementation", None) or "")


def takes_branches(model: nn.Module | ModelView) -> bool:
    """Whether batches for this model should say where their branches are."""
    return attention_of(model) == TREE
