"""What a verifier is asked and what it answers."""

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["scored", "unscored", "timeout", "error"]


class CannotStart(ValueError):
    """A verifier lacks something without which it can score no row at all; the message names it and the cure."""


@dataclass(frozen=True)
class ScoreItem:
    """One completion with the prompt's answer. ``metadata``: the prompt's other columns."""

    prompt: str
    answer: str
    completion: str
    metadata: dict[str, Any]
    is_truncated: bool = False
    """The token limit cut the completion: what comes last in it need not be its answer."""
    is_chat: bool = False
    """``prompt`` is a JSON list of messages {"role", "content"}, not plain text."""
    group_id: str = ""
    """Completions with one id answer the same prompt; a verifier that compares them is handed all of them at once."""
    completion_token_ids: tuple[int, ...] = ()
    """The ids that were sampled; only handed to verifiers that ask for them (``Source.reads_token_ids``)."""


@dataclass(frozen=True)
class Verdict:
    """``reward`` is None unless ``status`` is "scored".

    scored: the verifier decided. unscored: it does not apply to this row (an answer it can not read). timeout and error: it
    failed; never a silent 0.

    ``steps``: for a verifier that rewards steps, (character where the step ends, exclusive; its reward) in order.

    ``counts``: (name, value) of what the verdict cost or found; summed over the rows as the metric ``{source}_{name}``.
    """

    reward: float | None
    status: Status
    reason: str = ""
    steps: tuple[tuple[int, float], ...] = ()
    counts: tuple[tuple[str, float], ...] = ()


def scored(
    reward: float,
    reason: str = "",
    steps: tuple[tuple[int, float], ...] = (),
    counts: tuple[tuple[str, float], ...] = (),
) -> Verdict:
    return Verdict(float(reward), "scored", reason, steps, counts)


def unscored(reason: str) -> Verdict:
    return Verdict(None, "unscored", reason)


def failed(reason: str, counts: tuple[tuple[str, float], ...] = ()) -> Verdict:
    return Verdict(None, "error", reason, (), counts)


def timed_out(reason: str) -> Verdict:
    return Verdict(None, "timeout", reason)
