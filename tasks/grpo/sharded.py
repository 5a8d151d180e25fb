"""One update over several ranks: weights, gradients and optimiser states in pieces (FSDP2), numbers as of one process."""

import json
from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import PreTrainedModel

from tasks.grpo.batch import CompletionBatch, TokenSequence
from tasks.grpo.collective import SharedModel
from tasks.grpo.components import Layout
from tasks.grpo.layouts import UNITS
from tasks.grpo.logprobs import Entropy, TokenLogprobs, completion_logprobs
from tasks.grpo.shares import share_of
from tasks.runtime.shards import whole
from tasks.runtime.views import ModelView

T = TypeVar("T")


class Ranks:
    """The ranks of a device mesh, each with its own share of every minibatch."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self.rank = mesh.get_rank()
        self._size = mesh.size()
        self._shared: dict[int, SharedModel] = {}

    def share(self, model: PreTrainedModel | ModelView) -> SharedModel:
        """The model with its weights in pieces; the same model is given back as it was shared."""
        assert isinstance(model, PreTrainedModel)  # MachineConfig refuses to compile for several processes
        if id(model) not in self._shared:
            root = _shard(model, self._mesh)

            def forward(batch: CompletionBatch, temperatures_B: Tensor, entropy: Entropy) -> TokenLogprobs:
                found = TokenLogprobs(*root(batch, temperatures_B, entropy))
                if not torch.is_grad_enabled():
                    assert isinstance(root, FSDPModule)
                    root.reshard()  # no backward pass comes to do it
                return found

            self._shared[id(model)] = SharedModel(model, forward, self)
        return self._shared[id(model)]

    def part(self, sequences: Sequence[TokenSequence], layout: Layout, max_tokens: int) -> Sequence[TokenSequence]:
        return share_of(UNITS[layout](sequences, max_tokens), self.rank, self._size)

    def gathered(self, value: T) -> list[T]:
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self._size)]
        dist.all_gather(sizes, torch.tensor([len(data)]))
        longest = max(int(size) for size in sizes)
        texts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self._size)]
        dist.all_gather(texts, nn.functional.pad(data, (0, longest - len(data))))
        return [json.loads(bytes(text[: int(size)].tolist())) for text, size in zip(texts, sizes, strict=True)]

    def united(self, by_row: dict[int, Tensor]) -> dict[int, Tensor]:
        # JSON gives a float32 back to the last bit, NaN and infinities too.
        parts = self.gathered([(row, values_T.tolist()) for row, values_T in by_row.items()])
        return {row: torch.tensor(values, dtype=torch.float32) for part in parts for row, values in part}

    def total(self, tensor: Tensor) -> Tensor:
        return torch.tensor(sum(self.gathered(float(tensor))), dtype=tensor.dtype, device=tensor.device)


class _LogprobsModule(nn.Module):
    """The root of the sharding: its forward pass holds all that reads the model's weights, the output layer's too.

    The decoder is called and the output layer read apart from each other, so that the model's own ``forward`` never runs;
    FSDP gathers weights around a ``forward``.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: CompletionBatch, temperatures_B: Tensor, entropy: Entropy) -> tuple[Tensor, Tensor]:
        found = completion_logprobs(self.model, batch, temperatures_B, entropy)
        return found.logprobs_BC, found.entropy_BC


def _shard(model: PreTrainedModel, mesh: DeviceMesh) -> _LogprobsModule:
    """The blocks each by itself, the embeddings and the rest with the root, where a tied output layer stays tied."""
    root = _LogprobsModule(model)
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(root, mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            # Each rank's loss is over the global denominator: gradients are added, where FSDP would take their mean.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return root


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The layers that transformers says are not to be split, but for what holds an embedding; none where it names none."""
    names = set(model._no_split_modules or ())
    embeddings = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    found = [each for each in model.modules() if type(each).__name__ in names]
    return [each for each in found if not embeddings & {id(parameter) for parameter in each.parameters()}]


def whole_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The state dictionary with every tensor whole and on the CPU; tied names share one tensor. All ranks call it."""
    found: dict[int, Tensor] = {}
    named = model.state_dict(keep_vars=True)
    for value in named.values():
        if id(value) not in found:
            found[id(value)] = whole(value).detach().cpu()
    return {name: found[id(value)] for name, value in named.items()}
