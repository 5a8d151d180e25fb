"""JSON as RFC 8259 defines it, without what Python's parser lets through."""

import json
import math
from typing import Any

MAX_DEPTH = 64
"""Brackets inside brackets: what takes its values apart recurses, and must never run out of stack."""


class NotJson(ValueError):
    """The text is not one JSON value; the message says why."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise NotJson(f"the key {twice[:40]!r} stands twice")
    return found


def _constant(name: str) -> Any:
    raise NotJson(f"{name} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotJson(f"{text[:40]} is too large for a number")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
_SPACE = " \t\n\r"


def read_json(text: str) -> Any:
    """The value of a whole text; white space around it is allowed.

    Raises:
        NotJson: a syntax error, a key that stands twice, NaN or Infinity, a number past float64 (an integer: past 4300
            digits), nesting deeper than ``MAX_DEPTH``, or more text after the value.
    """
    value, end = read_json_at(text, 0)
    if text[end:].strip(_SPACE):
        raise NotJson("more text stands after the value")
    return value


def read_json_at(text: str, begin: int) -> tuple[Any, int]:
    """The value that begins at ``begin`` (after white space), and where it ends. Raises as ``read_json`` does."""
    while begin < len(text) and text[begin] in _SPACE:
        begin += 1
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise NotJson("the brackets are nested too deeply") from None
    except ValueError:
        raise NotJson("an integer has too many digits") from None
    if not is_within(value, MAX_DEPTH):
        raise NotJson(f"the brackets are nested deeper than {MAX_DEPTH}")
    return value, end


def is_within(value: Any, depth: int) -> bool:
    """Whether at most ``depth`` lists and objects stand inside one another; level by level, without recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return not level
