"""The precision of forward passes: bfloat16 where the hardware multiplies it, over weights that stay float32."""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from tasks.values.precision import Precision

log = logging.getLogger(__name__)


def compute_dtype(wanted: Precision, device: str) -> torch.dtype:
    """What products are computed in on ``device``: float32 or bfloat16.

    "auto" is bfloat16 on a CUDA device of compute capability 8.0 or more, else float32. On a CPU bfloat16 has to be asked for,
    also where AMX or AVX512-BF16 multiply it: the numbers of a run must not depend on which processor it met.
    """
    is_there = has_bfloat16(device)
    if wanted == "bfloat16" and not is_there:
        log.warning(
            "this %s has no bfloat16 products: they are emulated and slow; precision auto takes float32", device
        )
    return (
        torch.bfloat16
        if wanted == "bfloat16" or (wanted == "auto" and is_there and device.startswith("cuda"))
        else torch.float32
    )


def has_bfloat16(device: str) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware."""
    if device.startswith("cuda"):
        return torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (8, 0)
    # Named _is_... in torch 2.13; a build without them is taken to have no bfloat16.
    probes = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return device == "cpu" and any(probe() for probe in probes if probe is not None)


def in_precision(dtype: torch.dtype, device: str) -> AbstractContextManager[Any]:
    """Autocast to bfloat16; nothing for float32. For forward passes alone: a backward pass follows its forward."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=dtype)
