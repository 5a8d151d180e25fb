"""Settings of the verifiers that compare an answer with the gold one."""

import re
from typing import Literal

from pydantic import Field, field_validator

from tasks.verifiers.source import Source, named


class ExactVerifier(Source):
    """1.0 when the extracted answer equals the gold answer after trimming and NFKC, else 0.0."""

    kind: Literal["exact"]
    name: str = named("exact")
    answer_tag: str = "answer"
    """The answer stands in the last <answer>...</answer>; "" takes the whole completion."""


class MathVerifier(Source):
    """1.0 when the last balanced box (after the reasoning) equals the gold answer as mathematics, else 0.0."""

    kind: Literal["math"]
    name: str = named("math")
    reasoning_end: str = "</think>"
    """What precedes the last of these is not searched for an answer; "" searches everything."""


class ReasoningGymVerifier(Source):
    """The score of a reasoning-gym task (0 to 1) for the text in the answer tag."""

    kind: Literal["reasoning_gym"]
    name: str = named("reasoning_gym")
    answer_tag: str = ""
    """Empty: the last number of the completion or, where the gold answer is text, the whole trimmed completion; a
    completion that the token limit cut then scores 0."""


class NumericVerifier(Source):
    """1.0 when the answer is a number within the tolerance of the gold one, else 0.0."""

    kind: Literal["numeric"]
    name: str = named("numeric")
    where: Literal["tag", "box", "last_number"] = "tag"
    """The answer is what stands in the last <answer>...</answer>, in the last \\boxed{}, or the last number said."""
    answer_tag: str = Field(default="answer", min_length=1)
    reasoning_end: str = "</think>"
    """What precedes the last of these is not searched for an answer; "" searches everything."""
    relative_tolerance: float = Field(default=1e-6, ge=0, lt=1)
    """Of the gold number's size."""
    absolute_tolerance: float = Field(default=0.0, ge=0)
    """The larger of the two tolerances counts."""


class ChoiceVerifier(Source):
    """1.0 when the answer names the gold option (A to J) and no other, else 0.0."""

    kind: Literal["choice"]
    name: str = named("choice")
    where: Literal["tag", "box", "stated"] = "tag"
    """"stated": behind the last "answer is", "Answer:", "정답은" or "정답:"."""
    answer_tag: str = Field(default="answer", min_length=1)
    reasoning_end: str = "</think>"


class RegexVerifier(Source):
    """1.0 when a regular expression matches the completion, else 0.0."""

    kind: Literal["regex"]
    name: str = named("regex")
    pattern: str = ""
    """Empty: the gold answer is the pattern."""
    match: Literal["full", "search"] = "full"
    """"full": the whole trimmed text; "search": anywhere in it."""
    answer_tag: str = ""
    """Match what stands in the last <tag>...</tag>; "" takes the whole completion."""
    reasoning_end: str = "</think>"

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return pattern
