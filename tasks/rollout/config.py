"""How completions are sampled, and by which engine."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen


class SamplingConfig(Frozen):
    """The sampling distribution: softmax(logits / temperature) over the whole vocabulary.

    top_p, top_k and min_p are not offered for training: the engine would renormalise over the kept tokens and its
    log-probabilities would belong to another distribution than the trainer's.
    """

    temperature: float = Field(default=1.0, gt=0, le=10)
    max_new_tokens: int = Field(ge=1)
    stop: tuple[str, ...] = ()
    """Strings that end a completion once its text contains them; the ids keep them."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_truncated_distributions(cls, values: object) -> object:
        if isinstance(values, dict):
            for knob in ("top_p", "top_k", "min_p"):
                if knob in values:
                    raise ValueError(
                        f"{knob} is refused for training rollouts: it renormalises the distribution, so the ratio to the "
                        "policy would be wrong. Remove it and use temperature."
                    )
            if values.get("temperature") == 0:
                raise ValueError("temperature 0 has no log-probabilities to learn from; take a value above 0")
        return values

    @model_validator(mode="after")
    def _refuse_empty_stops(self) -> "SamplingConfig":
        if "" in self.stop:
            raise ValueError("an empty stop string would end every completion at once")
        return self


class TransformersEngineConfig(Frozen):
    """The engine in this process, on any transformers causal language model."""

    kind: Literal["transformers"] = "transformers"
    max_batch_rows: int = Field(default=128, ge=1)
    """Completions decoded together, at most: bounds the logits, rows x vocabulary."""
    max_batch_tokens: int = Field(default=65_536, ge=2)
    """Tokens of the key-value cache, rows x columns (a column for each token of the longest prompt and completion, and an
    eighth more): bounds its memory. A token takes 2 x layers x key-value heads x head size numbers, 46 kB for
    SmolLM2-135M in float32."""


class ScriptedEngineConfig(Frozen):
    """A deterministic stand-in: draws each completion from a script by its seed; no model is asked."""

    kind: Literal["scripted"]
    script: tuple[str, ...] = Field(min_length=1)
    """Completion texts; "{answer}" stands for the prompt's answer."""


EngineConfig = Annotated[TransformersEngineConfig | ScriptedEngineConfig, Field(discriminator="kind")]


class RolloutConfig(Frozen):
    """One step's rollouts."""

    prompts_per_step: int = Field(ge=1)
    group_size: int = Field(ge=2)
    """Completions per prompt. A group of one has no baseline: its advantage would be 0 by definition."""
    sampling: SamplingConfig
    engine: EngineConfig = TransformersEngineConfig()

    @model_validator(mode="before")
    @classmethod
    def _refuse_groups_of_one(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(size := values.get("group_size"), int) and size < 2:
            raise ValueError(f"group_size {size} gives every completion advantage 0; take at least 2")
        return values
