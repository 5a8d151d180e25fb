"""The policy update: one preset by name, every part of it visible and replaceable."""

from typing import Any, Literal

from pydantic import Field, model_validator

from tasks.grpo.components import (
    AdvantagesConfig,
    AggregationConfig,
    CorrectionConfig,
    CriticConfig,
    FilterConfig,
    KlConfig,
    Layout,
    LoraConfig,
    ObjectiveConfig,
    OverlongConfig,
)
from tasks.grpo.presets import PRESETS, merged
from tasks.values.frozen import Frozen
from tasks.values.optimiser import OptimiserConfig
from tasks.values.precision import Precision

GROUPWISE = ("group", "process", "leave_one_out")
"""Estimators whose advantages depend on the completion's own group alone."""


class UpdateConfig(Frozen):
    """How completions with rewards change the policy.

    ``algorithm`` names a preset, which fills in every part that the recipe does not give itself; a part given by another
    kind replaces the preset's, one given without a kind changes the preset's.
    """

    algorithm: str = "grpo"
    optimiser: OptimiserConfig
    num_epochs: int = Field(default=1, ge=1)
    """mu: passes over a step's samples."""
    minibatch_completions: int | None = Field(default=None, ge=1)
    """Completions per optimiser update; None takes all of the step's."""
    micro_batch_tokens: int = Field(default=16384, ge=1)
    """Tokens per forward pass, filling included; memory only, it can not change the result."""
    layout: Layout = "packed"
    """Whether the completions of a group stand behind their prompt in one row; a model that can not take it is padded."""
    precision: Precision = "auto"
    """Of products in forward and backward passes. Weights, log-softmax, losses and optimiser stay float32."""
    lora: LoraConfig | None = None
    """Train an adapter of low rank instead of the weights; None trains the weights."""
    truncated: Literal["keep", "mask", "zero"] = "keep"
    """Completions cut by the token limit: keep their reward; mask them out of the group and the loss; or count their
    reward (each of their step rewards) as zero."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus (nats per token, aggregated as the objective is); 0: entropy is only measured."""
    rollout_policy: Literal["current", "initial"]
    """Whose completions are trained on: those of the policy as it stands, or of the lineage's first policy."""
    advantages: AdvantagesConfig
    objective: ObjectiveConfig
    aggregation: AggregationConfig
    kl: KlConfig
    group_filter: FilterConfig
    overlong: OverlongConfig
    rollout_correction: CorrectionConfig
    critic: CriticConfig | None

    @model_validator(mode="before")
    @classmethod
    def _fill_from_the_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        algorithm = values.get("algorithm", "grpo")
        if algorithm not in PRESETS:
            raise ValueError(f"no algorithm is called {algorithm!r}; there are {', '.join(PRESETS)}")
        return merged(PRESETS[algorithm].parts, values)

    @model_validator(mode="after")
    def _check_the_parts_together(self) -> "UpdateConfig":
        kind = self.advantages.kind
        if (kind == "gae") != (self.critic is not None):
            raise ValueError('a critic and advantages of kind "gae" belong together: give both or neither')
        if self.group_filter.kind == "dynamic" and kind not in GROUPWISE:
            raise ValueError(f'group_filter "dynamic" needs advantages within groups, not {kind!r}; take "keep"')
        if self.kl.placement == "reward" and (kind in ("process", "correct_only") or self._combines_sources):
            raise ValueError(f'{kind!r} advantages have no place for a KL in the reward; take kl = "loss" or "none"')
        if self.overlong.kind == "soft" and kind in ("process", "correct_only"):
            raise ValueError(f'{kind!r} advantages do not read the total reward: overlong "soft" would do nothing')
        if self.rollout_policy == "initial" and (
            self.objective.kind != "log_likelihood" or self.rollout_correction.kind != "none"
        ):
            raise ValueError(
                'rollout_policy "initial" samples from weights that the ratio is not taken to; it needs objective '
                '"log_likelihood" and no rollout_correction'
            )
        return self

    @property
    def _combines_sources(self) -> bool:
        return self.advantages.kind == "group" and self.advantages.normalise == "each_source"

    @property
    def kl_in_loss(self) -> bool:
        """Whether the reference takes part in the update itself."""
        return self.kl.placement == "loss"

    def sample_settings(self) -> dict[str, Any]:
        """What decides the samples table; the other settings belong to the update alone."""
        parts = {"advantages", "kl", "overlong", "group_filter", "truncated"}
        if self.kl.placement == "reward":
            parts.add("precision")  # models are asked
        return self.model_dump(mode="json", include=parts)
