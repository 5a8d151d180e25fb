"""How a policy is measured, and when it becomes the champion."""

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen


class AlarmConfig(Frozen):
    """The over-optimisation alarm, see ``tasks/evaluation/alarm.py``."""

    patience: int = Field(default=2, ge=1)
    """Iterations in a row in which held-out accuracy falls and the reward model's mean rises before it is raised."""


class EvaluationConfig(Frozen):
    """Held-out evaluation: one greedy completion and ``num_samples`` sampled ones per prompt, the same seeds every time."""

    num_samples: int = Field(default=4, ge=2)
    ks: tuple[int, ...] = (1, 4)
    """pass@k for these k, unbiased, from the sampled completions."""
    alarm: AlarmConfig = Field(default=AlarmConfig(), exclude_if=lambda alarm: alarm == AlarmConfig())
    """Left out of what is recorded at its default, so that lineages from before there was this setting go on."""

    @model_validator(mode="after")
    def _check(self) -> "EvaluationConfig":
        if bad := [k for k in self.ks if not 1 <= k <= self.num_samples]:
            raise ValueError(f"ks {bad} are not between 1 and num_samples {self.num_samples}")
        return self


class PromotionConfig(Frozen):
    """The champion moves when the paired bootstrap interval of (candidate - champion) accuracy lies at or above -margin."""

    margin: float = Field(default=0.02, ge=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    num_resamples: int = Field(default=2000, ge=100)
