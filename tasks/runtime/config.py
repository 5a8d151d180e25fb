"""The machine a run computes on."""

from typing import Literal

from pydantic import Field

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
