"""The machine a run computes on."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen


class MachineConfig(Frozen):
    """Where the numbers are computed: may change between runs of one lineage, unlike everything else."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes the first CUDA device when there is one."""
    num_threads: int | None = Field(default=None, ge=1)
    """torch threads of each process; None takes torch's default, or an equal share of the cores for several processes."""
    num_processes: int = Field(default=1, ge=1)
    """Processes (ranks) that make a policy update together, each with its pieces of weights and optimiser states (FSDP2); on
    CUDA each needs a device of its own. The numbers are those of one process up to rounding."""
    gradient_checkpointing: bool = False
    """Keep one input per layer of the policy and compute the rest again in the backward pass: a third more time, activations
    of one layer instead of all."""
    compile: Literal["off", "inductor", "aot_eager", "eager"] = "off"
    """Backend of ``torch.compile`` for the policy's decoder in updates; inductor needs a C++ compiler."""
    offload_optimiser: bool = False
    """Keep the optimiser's state in host memory; each parameter's part visits the device while it is updated."""

    @model_validator(mode="after")
    def _check(self) -> "MachineConfig":
        if self.num_processes > 1 and (self.compile != "off" or self.offload_optimiser):
            raise ValueError(
                f"num_processes {self.num_processes} goes neither with compile nor with offload_optimiser: leave both out, or "
                "set num_processes to 1"
            )
        return self
