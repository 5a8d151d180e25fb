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
