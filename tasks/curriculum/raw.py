"""A prompt as its source gives it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RawPrompt:
    """``prompt``: text, or chat messages [{"role", "content"}]. ``metadata``: the source's other columns (JSON values)."""

    prompt: str | list[dict[str, str]]
    answer: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class LoadedPrompts:
    """Prompts in the order of their source, and the files that they were read from, sorted."""

    prompts: list[RawPrompt]
    files: list[str]


def from_columns(
    rows: Sequence[Mapping[str, Any]], prompt_column: str, answer_column: str, where: str
) -> list[RawPrompt]:
    """Rows of a table as prompts.

    Raises:
        ValueError: no rows, a column that is not there (names those that are), a prompt or answer that is missing or
            of another kind (names the row).
    """
    if not rows:
        raise ValueError(f"{where} holds no prompts")
    for column in (prompt_column, answer_column):
        if column not in rows[0]:
            raise ValueError(
                f"{where} has no column {column!r}; it has {sorted(rows[0])}. Set prompts.source.prompt_column and "
                "answer_column."
            )
    return [_from_row(row, number, prompt_column, answer_column, where) for number, row in enumerate(rows)]


def _from_row(row: Mapping[str, Any], number: int, prompt_column: str, answer_column: str, where: str) -> RawPrompt:
    prompt, answer = row.get(prompt_column), row.get(answer_column)
    is_blank = (isinstance(answer, str) and not answer.strip()) or (isinstance(answer, float) and math.isnan(answer))
    if answer is None or is_blank:
        raise ValueError(
            f"row {number} of {where} has no {answer_column!r}: a prompt without an answer can not be verified"
        )
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        raise ValueError(f"row {number} of {where}: {answer_column!r} is {type(answer).__name__}, not text or a number")
    if isinstance(prompt, str) and prompt.strip():
        text: str | list[dict[str, str]] = prompt
    elif isinstance(prompt, (list, tuple)) and prompt and all(_is_message(message) for message in prompt):
        text = [{"role": message["role"], "content": message["content"]} for message in prompt]
    else:
        raise ValueError(
            f"row {number} of {where}: {prompt_column!r} is neither text nor a list of messages with role and content"
        )
    others = {key: value for key, value in row.items() if key not in (prompt_column, answer_column)}
    return RawPrompt(text, str(answer), others)


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and all(isinstance(message.get(key), str) for key in ("role", "content"))
