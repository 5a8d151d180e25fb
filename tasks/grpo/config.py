"""The policy update."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen
from tasks.values.optimiser import OptimiserConfig


class AdvantageConfig(Frozen):
    """Group-relative advantages: (reward - mean) / (std + eps), std with ddof 1; "none" leaves out the division."""

    scale: Literal["std", "none"] = "std"
    std_eps: float = Field(default=1e-6, ge=0)
    truncated: Literal["keep", "mask", "zero"] = "keep"
    """Completions cut by the token limit: keep their reward; mask them out of the group and the loss; or count their
    reward as zero."""


class GrpoConfig(Frozen):
    """DeepSeekMath's GRPO (arXiv:2402.03300, eq. 3 and 4): clipped surrogate minus beta times k3 KL, sequence-mean of
    token-means."""

    algorithm: Literal["grpo"] = "grpo"
    advantages: AdvantageConfig = AdvantageConfig()
    optimiser: OptimiserConfig
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    kl_beta: float = Field(default=0.04, ge=0)
    """Weight of the KL to the iteration's reference; 0 leaves the reference out."""
    num_epochs: int = Field(default=1, ge=1)
    """mu: passes over a step's samples."""
    minibatch_completions: int | None = Field(default=None, ge=1)
    """Completions per optimiser update; None takes all of the step's."""
    micro_batch_tokens: int = Field(default=16384, ge=1)
    """Padded tokens per forward pass; memory only, it can not change the result."""

    @model_validator(mode="after")
    def _check(self) -> "GrpoConfig":
        if self.advantages.scale == "none" and "std_eps" in self.advantages.model_fields_set:
            raise ValueError('std_eps has no meaning with scale = "none"; remove it')
        return self
