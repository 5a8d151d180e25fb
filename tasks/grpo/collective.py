"""How an update is shared among processes: alone here, among ranks in ``tasks/grpo/sharded.py``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.grpo.batch import CompletionBatch, TokenSequence, pad
from tasks.grpo.components import Layout
from tasks.grpo.layouts import batches_of
from tasks.grpo.logprobs import Entropy, TokenLogprobs, completion_logprobs, detached_entropy
from tasks.runtime.views import ModelView

T = TypeVar("T")

Forward = Callable[[CompletionBatch, Tensor, Entropy], TokenLogprobs]
"""``completion_logprobs`` of one model."""


class Collective(Protocol):
    """The processes that make one update together. Every method but ``part`` is called by all of them, in the same order."""

    rank: int

    def share(self, model: PreTrainedModel | ModelView) -> "SharedModel":
        """The model as these processes compute with it; its weights may lie in pieces afterwards."""

    def part(self, sequences: Sequence[TokenSequence], layout: Layout, max_tokens: int) -> Sequence[TokenSequence]:
        """The sequences that this process computes; every process has the same ``sequences``."""

    def gathered(self, value: T) -> list[T]:
        """Every process's value (numbers, strings, lists and dictionaries of them), in the order of the ranks."""

    def united(self, by_row: dict[int, Tensor]) -> dict[int, Tensor]:
        """Row -> float32 tensor on the CPU, the processes' rows together."""

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of every process's number; the same bits everywhere."""


@dataclass(frozen=True)
class SharedModel:
    """A model and the processes that compute with it."""

    model: PreTrainedModel | ModelView
    forward: Forward
    collective: Collective

    def logprobs(
        self, batch: CompletionBatch, temperatures_B: Tensor, entropy: Entropy = detached_entropy
    ) -> TokenLogprobs:
        return self.forward(batch, temperatures_B, entropy)

    def batches(
        self, layout: Layout, sequences: Sequence[TokenSequence], max_tokens: int
    ) -> Iterator[CompletionBatch | None]:
        """This process's micro-batches, then None for each that another one still has: the caller answers it with
        ``idle``, since a sharded model takes as many passes on every rank."""
        own = batches_of(layout, self.model, self.collective.part(sequences, layout, max_tokens), max_tokens)
        batch = next(own, None)
        while any(self.collective.gathered(batch is not None)):
            yield batch
            batch = next(own, None)

    def idle(self) -> Tensor:
        """0, whose gradient is 0 in every weight, by a pass over two tokens."""
        device = str(self.model.device)
        batch = pad([TokenSequence(0, [0], [0])], device)
        return self.logprobs(batch, torch.ones(1, device=device)).logprobs_BC.sum() * 0.0


class Alone:
    """One process that does everything itself."""

    rank = 0

    def share(self, model: PreTrainedModel | ModelView) -> SharedModel:
        return SharedModel(model, partial(completion_logprobs, model), self)

    def part(self, sequences: Sequence[TokenSequence], layout: Layout, max_tokens: int) -> Sequence[TokenSequence]:
        return sequences

    def gathered(self, value: T) -> list[T]:
        return [value]

    def united(self, by_row: dict[int, Tensor]) -> dict[int, Tensor]:
        return by_row

    def total(self, tensor: Tensor) -> Tensor:
        return tensor


ALONE = Alone()
