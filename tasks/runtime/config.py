"""The machine a run computes on."""

from typing import Literal

from pydantic import Field

from tasks.values.frozen import Frozen


class MachineConfig(Frozen):
    """Where the numbers are computed: may change between runs of one lineage, unlike everything else."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes the first CUDA device when there is one."""
    num_threads: int | None = Field(default=None, ge=1)
    """torch threads; None takes torch's default."""
    gradient_checkpointing: bool = False
    """Keep one input per layer of the policy and compute the rest again in the backward pass: a third more time, activations
    of one layer instead of all."""
    compile: Literal["off", "inductor", "aot_eager", "eager"] = "off"
    """Backend of ``torch.compile`` for the policy's decoder in updates; inductor needs a C++ compiler."""
    offload_optimiser: bool = False
    """Keep the optimiser's state in host memory; each parameter's part visits the device while it is updated."""
