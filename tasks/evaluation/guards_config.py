"""Bounds that a person sets on what a run measures, and what happens when one is passed."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen

Action = Literal["warn", "stop", "rollback"]
"""warn: recorded, the run goes on. stop: the run ends with an error, and so does the next one until a person has acted.
rollback: the iteration ends early, and the next one starts from the champion."""


class Guard(Frozen):
    """One measure may not rise above ``max`` or fall below ``min``; a bound itself is still allowed."""

    max: float | None = Field(default=None, allow_inf_nan=False)
    min: float | None = Field(default=None, allow_inf_nan=False)
    action: Action = "warn"

    @model_validator(mode="after")
    def _check(self) -> "Guard":
        if self.max is None and self.min is None:
            raise ValueError("a guard needs a bound: give max or min")
        if self.max is not None and self.min is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}: nothing would pass")
        return self


class GuardsConfig(Frozen):
    """The guarded measures; None does not guard. May change between runs of one lineage.

    The first six are looked at after every step, the others after the evaluation of an iteration.
    """

    kl: Guard | None = None
    """Nats per trained token to the reference (k3), mean of the step."""
    entropy: Guard | None = None
    """Nats per trained token, mean of the step."""
    no_signal_share: Guard | None = None
    """Share of the step's groups whose rewards are all equal."""
    truncated_share: Guard | None = None
    """Share of the step's completions that the token limit cut."""
    grad_norm: Guard | None = None
    """Gradient norm before clipping, mean of the step's updates."""
    unscored_share: Guard | None = None
    """Share of the step's completions without a reward."""
    reward_model_gap: Guard | None = None
    """Reward model's mean less the verifier's accuracy, over the same held-out completions."""
    accuracy_drop: Guard | None = None
    """Held-out accuracy that the iteration lost: before less after."""
