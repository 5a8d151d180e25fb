"""Key-value caches of rows that come and go: columns are right-aligned, rows may be dropped and added."""

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache

Layer = tuple[Tensor, Tensor]  # keys and values, each [B, heads, T, head size]


def layers_of(cache: DynamicCache) -> list[Layer]:
    return [(layer.keys, layer.values) for layer in cache.layers]


def cache_of(layers: list[Layer]) -> DynamicCache:
    cache = DynamicCache()
    for index, (keys, values) in enumerate(layers):
        cache.update(keys, values, index)
    return cache


def repeat_rows(layers: list[Layer], counts_B: Tensor) -> list[Layer]:
    """Row b repeated counts_B[b] times: the prompt is computed once for all samples of its group."""
    return [
        (keys.repeat_interleave(counts_B, dim=0), values.repeat_interleave(counts_B, dim=0)) for keys, values in layers
    ]


def keep_rows(layers: list[Layer], rows: Tensor, num_columns: int) -> list[Layer]:
    """The rows named, cut to their last ``num_columns`` columns (the others belonged to longer rows that left)."""
    return [(keys[rows, :, -num_columns:], values[rows, :, -num_columns:]) for keys, values in layers]


def join_rows(old: list[Layer], new: list[Layer]) -> list[Layer]:
    """Old and new rows in one cache, the shorter side padded on the left with zeros (masked by the attention mask)."""
    joined = []
    for (old_keys, old_values), (new_keys, new_values) in zip(old, new, strict=True):
        columns = max(old_keys.shape[2], new_keys.shape[2])
        joined.append(
            (
                torch.cat([_left_pad(old_keys, columns), _left_pad(new_keys, columns)]),
                torch.cat([_left_pad(old_values, columns), _left_pad(new_values, columns)]),
            )
        )
    return joined


def _left_pad(tensor: Tensor, columns: int) -> Tensor:
    missing = columns - tensor.shape[2]
    return pad(tensor, (0, 0, missing, 0)) if missing else tensor
