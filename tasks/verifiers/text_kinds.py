"""Settings of the verifiers that look at how a completion is written: its tags, its steps, its language."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen
from tasks.verifiers.source import Source, named


class NewlineSplit(Frozen):
    """Each line is a step; blank lines join the step before them."""

    kind: Literal["newline"]


class SeparatorSplit(Frozen):
    """A step ends after any of the separators, the longest where several match."""

    kind: Literal["separator"]
    separators: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)


class TagSplit(Frozen):
    """A step ends with each <tag>...</tag> block."""

    kind: Literal["tag"]
    tag: str = Field(pattern=r"^[^<>/\s]+$")


StepSplit = Annotated[NewlineSplit | SeparatorSplit | TagSplit, Field(discriminator="kind")]
"""The ways that need nothing but the text."""


class FormatVerifier(Source):
    """1.0 when each tag stands exactly once, in order, filled, with nothing around, else 0.0."""

    kind: Literal["format"]
    name: str = named("format")
    weight: float = 0.1
    tags: tuple[Annotated[str, Field(pattern=r"^[^<>/\s]+$")], ...] = Field(default=("think", "answer"), min_length=1)

    @model_validator(mode="after")
    def _check(self) -> "FormatVerifier":
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"tags {list(self.tags)} name a tag twice, but each must stand exactly once; remove one")
        return self


class StepVerifier(Source):
    """What every verifier has that rewards each step of a completion."""

    split: StepSplit


class ArithmeticStepsVerifier(StepVerifier):
    """For chain arithmetic: every shown step 1.0 when it is right and goes on from the one before, else 0.0.

    The reward is the mean of the steps; weight 0 leaves it out of the total, where the process is supervised instead.
    """

    kind: Literal["arithmetic_steps"]
    name: str = named("steps")
    weight: float = 0.0
    answer_tag: str = Field(default="answer", min_length=1)
    split: StepSplit = SeparatorSplit(kind="separator", separators=(",", "</think>"))
