"""A rank's place among the others: its device, and the mesh of all of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


@contextmanager
def joined(machine: MachineConfig) -> Iterator[tuple[DeviceMesh, str]]:
    """Join the group that torchrun describes in the environment; gives the mesh and this rank's device.

    Raises:
        ValueError: fewer CUDA devices than ranks on this machine.
    """
    kind = prepare(machine)
    device = kind
    if kind == "cuda":
        local_rank, num_local = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        if torch.cuda.device_count() < num_local:
            raise ValueError(
                f"machine.num_processes {num_local} wants as many CUDA devices and {torch.cuda.device_count()} are there; "
                'lower it, or set machine.device to "cpu"'
            )
        torch.cuda.set_device(local_rank)
        device = f"cuda:{local_rank}"
    dist.init_process_group(BACKENDS[kind])
    try:
        yield init_device_mesh(kind, (dist.get_world_size(),)), device
    finally:
        dist.destroy_process_group()
