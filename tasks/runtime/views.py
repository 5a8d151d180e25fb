"""A model as the code that asks it for log-probabilities sees it: with another way of running its decoder."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn


class ModelView:
    """``model`` with ``decode`` in place of its decoder. The weights are the model's own: nothing is copied."""

    def __init__(self, model: nn.Module, decode: Callable[..., Any]) -> None:
        self._model = model
        self._decode = decode
        self.config = model.config
        self.device = model.device

    def get_decoder(self) -> Callable[..., Any]:
        return self._decode

    def get_output_embeddings(self) -> nn.Module:
        return self._model.get_output_embeddings()  # type: ignore[no-any-return, operator]

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._model.parameters()


def compiled(model: nn.Module, backend: str) -> ModelView:
    """The model with its decoder compiled by ``torch.compile``, for shapes that change from batch to batch.

    The model itself is not touched: whoever samples from it runs the code that it came with.
    """
    return ModelView(model, torch.compile(model.get_decoder(), backend=backend, dynamic=True))  # type: ignore[operator]
