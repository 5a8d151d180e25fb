"""Settings of the verifiers that compare an answer with the gold one."""

from typing import Literal

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
