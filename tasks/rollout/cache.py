"""Keys and values of rows that come and go, in memory allocated once: a step writes one column and copies nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer


@dataclass
class Window:
    """The part of the cache that one forward pass reads and writes: rows [first, last), columns [oldest, end).

    The newest tokens of all rows stand in the same columns [newest, end), so that one slice takes them.
    """

    first: int
    last: int
    oldest: int
    newest: int
    end: int


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [rows, heads, columns, head size], made at the first update, whose sizes they take."""

    is_sliding = False

    def __init__(self, num_rows: int, num_columns: int, window: Window) -> None:
        super().__init__()
        self._num_rows, self._num_columns, self._window = num_rows, num_columns, window

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # Zeros, since a masked column still meets a weight of 0, and 0 times what was in memory may be NaN.
        self.keys, self.values = (
            states.new_zeros(self._num_rows, states.shape[1], self._num_columns, states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_settings: Any) -> tuple[Tensor, Tensor]:
        """Write the newest columns in place; gives views of the window."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        window = self._window
        rows, columns = slice(window.first, window.last), slice(window.oldest, window.end)
        self.keys[rows, :, window.newest : window.end] = key_states
        self.values[rows, :, window.newest : window.end] = value_states
        return self.keys[rows, :, columns], self.values[rows, :, columns]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that the mask covers, and the number of the first."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Columns before the newest."""
        return self._window.newest - self._window.oldest

    def get_max_length(self) -> int:
        return self._num_columns


class RowCache(Cache):  # type: ignore[misc]
    """A transformers cache of ``num_rows`` x ``num_columns`` tokens for any model whose layers are attention.

    A layer with a sliding window keeps all columns; its mask, which transformers makes from ``Window``, hides the old ones.
    """

    def __init__(self, config: PreTrainedConfig, num_rows: int, num_columns: int) -> None:
        check_attention_only(config)
        self.window = Window(0, 0, 0, 0, 0)
        self.num_rows, self.num_columns = num_rows, num_columns
        layers = config.get_text_config(decoder=True).num_hidden_layers
        super().__init__(layers=[_Layer(num_rows, num_columns, self.window) for _ in range(layers)])

    def look_at(self, rows: slice, oldest: int, newest: int, end: int) -> None:
        """Set the window of the next forward pass."""
        window = self.window
        window.first, window.last = rows.start, rows.stop
        window.oldest, window.newest, window.end = oldest, newest, end

    def copy(self, sources: Sequence[int], source_end: int, targets: Sequence[int], end: int, length: int) -> None:
        """Copy ``length`` columns: those before ``source_end`` of each source row to those before ``end`` of its target.

        Every source is read before any target is written.
        """
        if not sources or not length:
            return
        read, written = torch.tensor(sources), torch.tensor(targets)
        for layer in self.layers:
            if layer.is_initialized:
                for states in (layer.keys, layer.values):
                    found = states[:, :, source_end - length : source_end][read.to(states.device)]
                    states[:, :, end - length : end].index_copy_(0, written.to(states.device), found)


def check_attention_only(config: PreTrainedConfig) -> None:
    """Refuse a model with layers that keep another state than keys and values of every token.

    Raises:
        ValueError: names the kinds of layer.
    """
    kinds = {type(layer) for layer in DynamicCache(config=config).layers}
    if foreign := sorted(kind.__name__ for kind in kinds - {DynamicLayer, DynamicSlidingWindowLayer}):
        raise ValueError(
            f"{config.model_type} has layers with a state of their own ({', '.join(foreign)}), which this engine can not "
            "share among samples; take another model or a server engine"
        )
