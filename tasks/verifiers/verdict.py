"""What a verifier is asked and what it answers."""

import json
from dataclasses import asdict, dataclass
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

    ``steps``: for a verifier that rewards steps, (character where the step ends, exclusive; its reward) in order.
    """

    reward: float | None
    status: Status
    reason: str = ""
    steps: tuple[tuple[int, float], ...] = ()


def scored(reward: float, reason: str = "", steps: tuple[tuple[int, float], ...] = ()) -> Verdict:
    return Verdict(float(reward), "scored", reason, steps)


def unscored(reason: str) -> Verdict:
    return Verdict(None, "unscored", reason)


def failed(reason: str) -> Verdict:
    return Verdict(None, "error", reason)


def timed_out(reason: str) -> Verdict:
    return Verdict(None, "timeout", reason)


def to_json(verdict: Verdict) -> str:
    """A verdict as one line."""
    return json.dumps(asdict(verdict))


def from_json(line: str | bytes) -> Verdict:
    """The verdict of a line, equal to the one written: JSON has no tuples, so its lists become tuples again."""
    fields = json.loads(line)
    return Verdict(**{**fields, "steps": tuple((int(end), float(reward)) for end, reward in fields["steps"])})
