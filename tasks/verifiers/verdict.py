"""What a verifier is asked and what it answers."""

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["scored", "unscored", "timeout", "error"]


@dataclass(frozen=True)
class ScoreItem:
    """One completion with the prompt's answer. ``metadata``: the prompt's other columns."""

    prompt: str
    answer: str
    completion: str
    metadata: dict[str, Any]
    is_truncated: bool = False
    """The token limit cut the completion: what comes last in it need not be its answer."""


@dataclass(frozen=True)
class Verdict:
    """``reward`` is None unless ``status`` is "scored".

    scored: the verifier decided. unscored: it does not apply to this row (an answer it can not read). timeout and error: it
    failed; never a silent 0.
    """

    reward: float | None
    status: Status
    reason: str = ""


def scored(reward: float, reason: str = "") -> Verdict:
    return Verdict(float(reward), "scored", reason)


def unscored(reason: str) -> Verdict:
    return Verdict(None, "unscored", reason)


def failed(reason: str) -> Verdict:
    return Verdict(None, "error", reason)


def timed_out(reason: str) -> Verdict:
    return Verdict(None, "timeout", reason)
