"""Where prompts come from, how they are written down, and which of them are held out."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen


class PromptFormat(Frozen):
    """How a source's prompt text becomes what the model reads."""

    style: Literal["plain", "chat"] = "plain"
    """plain: the text as it is. chat: one user message through the tokenizer's chat template."""
    template: str = "{prompt}"
    """Put around the source's prompt text; must contain {prompt} once."""
    system: str = ""
    """System message of the chat style; "" for none."""

    @model_validator(mode="after")
    def _check(self) -> "PromptFormat":
        if self.template.count("{prompt}") != 1:
            raise ValueError(f"template {self.template!r} must contain {{prompt}} exactly once")
        if self.style == "plain" and self.system:
            raise ValueError('a system message needs style = "chat"')
        return self


class ArithmeticPrompts(Frozen):
    """Chain arithmetic made on the spot: "5+8-1-5=" with answer "7"."""

    kind: Literal["arithmetic"]
    num_prompts: int = Field(ge=2)
    min_terms: int = Field(default=3, ge=2, le=9)
    max_terms: int = Field(default=5, ge=2, le=9)

    @model_validator(mode="after")
    def _check(self) -> "ArithmeticPrompts":
        if self.max_terms < self.min_terms:
            raise ValueError(f"max_terms {self.max_terms} is below min_terms {self.min_terms}")
        return self


class JsonlPrompts(Frozen):
    """A JSON-lines file; ``path`` may also be a folder of *.jsonl files (read in sorted order)."""

    kind: Literal["jsonl"]
    path: str
    prompt_column: str = "prompt"
    answer_column: str = "answer"


class ParquetPrompts(Frozen):
    """A Parquet file, or a folder of *.parquet files (read in sorted order)."""

    kind: Literal["parquet"]
    path: str
    prompt_column: str = "prompt"
    answer_column: str = "answer"


class DatasetsPrompts(Frozen):
    """A Hugging Face ``datasets`` name on the hub, or a folder saved with ``save_to_disk``."""

    kind: Literal["datasets"]
    name: str
    subset: str | None = None
    split: str = "train"
    revision: str | None = None
    prompt_column: str = "prompt"
    answer_column: str = "answer"


class ReasoningGymPrompts(Frozen):
    """A procedural task of reasoning-gym with its own parameters."""

    kind: Literal["reasoning_gym"]
    task: str
    num_prompts: int = Field(ge=2)
    parameters: dict[str, Any] = {}


PromptSource = Annotated[
    ArithmeticPrompts | JsonlPrompts | ParquetPrompts | DatasetsPrompts | ReasoningGymPrompts,
    Field(discriminator="kind"),
]


class PromptsConfig(Frozen):
    """The prompts of a lineage: fixed when it is born."""

    source: PromptSource
    format: PromptFormat = PromptFormat()
    num_heldout: int = Field(ge=1)
    """Prompts kept for evaluation, never trained on. Chosen by prompt key, so the choice is the same in every run."""
    max_prompt_tokens: int = Field(default=512, ge=1)
    """Longer prompts are dropped and counted."""
