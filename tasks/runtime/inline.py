"""This process as the place where stages compute."""

import torch

from tasks.runtime.config import MachineConfig


def threads_and_cuda() -> tuple[int, str | None]:
    """How many threads torch uses in this process, and the name of the CUDA device, None when there is none."""
    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return torch.get_num_threads(), cuda


def prepare(machine: MachineConfig) -> str:
    """Set torch's threads for the work that follows; gives the device's name, "cpu" or "cuda".

    Raises:
        ValueError: the recipe asks for a device that is not there.
    """
    if machine.num_threads is not None:
        torch.set_num_threads(machine.num_threads)
    has_cuda = torch.cuda.is_available()
    if machine.device == "cuda" and not has_cuda:
        raise ValueError('machine.device is "cuda" but torch sees no CUDA device; set it to "auto" or "cpu"')
    return "cuda" if has_cuda and machine.device != "cpu" else "cpu"
