"""Tensors that may lie in pieces on several ranks, and the same tensors whole."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor. For one in pieces this is a collective: every rank has to call it, in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def piece(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, all of it where it is not in pieces."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def like(parameter: Tensor, value: Tensor) -> Tensor:
    """``value`` (whole, on any device) laid out as ``parameter`` is: on its device, and in its pieces."""
    moved = value.to(parameter.device)
    if not isinstance(parameter, DTensor):
        return moved
    # Every rank has read the same bytes: without a source rank each takes its piece and nothing is sent.
    return distribute_tensor(moved, parameter.device_mesh, parameter.placements, src_data_rank=None)
