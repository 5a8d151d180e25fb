"""What a verifier process and its parent say to each other: one JSON value a line, in both directions.

The parent begins with the settings; the process answers ``ready`` or why it can not start. Then each request is a row (or
the rows of a group) with the positions of the verifiers to ask, and each of those verifiers answers with one line.

The text is UTF-8 in which lone surrogates are kept (WTF-8): whatever a Python string holds arrives as it was. JSON escapes
line feeds, and lines are split as bytes, so no character of a completion can end a line.
"""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.verdict import ScoreItem, Verdict

READY = ""


class Opening(BaseModel):
    """The first line: the verifiers, and the folder that relative paths in their settings begin at."""

    verifiers: list[VerifierConfig]
    folder: str


def opening_line(verifiers: Sequence[VerifierConfig], folder: str) -> bytes:
    return Opening(verifiers=list(verifiers), folder=folder).model_dump_json().encode() + b"\n"


def read_opening(line: bytes) -> Opening:
    return Opening.model_validate_json(line)


def start_line(fault: str) -> bytes:
    """How the start went: ``READY``, or what is missing."""
    return _bytes(fault)


def read_start(line: bytes) -> str:
    return str(_value(line))


def request_line(verifiers: Sequence[int], items: Sequence[ScoreItem]) -> bytes:
    """Ask the verifiers at these positions about the rows."""
    return _bytes([list(verifiers), [vars(item) for item in items]])


def read_request(line: bytes) -> tuple[list[int], list[ScoreItem]]:
    verifiers, items = _value(line)
    return verifiers, [
        ScoreItem(**{**each, "completion_token_ids": tuple(each["completion_token_ids"])}) for each in items
    ]


def answer_line(verdicts: Sequence[Verdict]) -> bytes:
    """One verifier's verdicts on the rows of a request."""
    return _bytes([[each.reward, each.status, each.reason, each.steps, each.counts] for each in verdicts])


def read_answer(line: bytes) -> list[Verdict]:
    """The verdicts, equal to those written: JSON has no tuples, so its lists become tuples again."""
    return [
        Verdict(
            None if reward is None else float(reward),
            status,
            reason,
            tuple((int(end), float(value)) for end, value in steps),
            tuple((str(name), float(value)) for name, value in counts),
        )
        for reward, status, reason, steps, counts in _value(line)
    ]


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _value(line: bytes) -> Any:
    return json.loads(line.decode("utf-8", "surrogatepass"))
