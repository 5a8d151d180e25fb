"""Settings of the optimiser that every trained model shares."""

from typing import Literal

from pydantic import Field

from tasks.values.frozen import Frozen

StatePrecision = Literal["float32", "int8"]


class OptimiserConfig(Frozen):
    """AdamW with linear warm-up, then a constant rate; its state goes on over steps and iterations."""

    learning_rate: float = Field(gt=0)
    num_warmup_updates: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    state: StatePrecision = "float32"
    """How the moments are kept: in full, or in eight bits with a scale per 256 numbers (about a quarter of the memory)."""
