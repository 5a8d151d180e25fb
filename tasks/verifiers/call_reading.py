"""The tool calls that a completion makes."""

import re
from dataclasses import dataclass
from typing import Any

from tasks.verifiers.strict_json import NotJson, read_json, read_json_at

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_OPENAI = re.compile(
    r'\{\s*"tool_calls"\s*:|\[\s*\{\s*(?:"id"\s*:\s*"[^"]{0,200}"\s*,\s*)?(?:"type"\s*:\s*"function"|"function"\s*:)'
)


@dataclass(frozen=True)
class Call:
    """One call: the function's name and its arguments as JSON values."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """The calls of a text in order, and whether anything but white space stands around them."""

    calls: tuple[Call, ...]
    is_alone: bool


class Malformed(ValueError):
    """The text calls tools in a form that nothing could run; the message says what is wrong."""


def read_calls(text: str) -> Reading:
    """The calls of a text, in one of two shapes.

    Hermes and Qwen: ``<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>``, any number of them. OpenAI:
    ``{"tool_calls": [...]}`` (a whole message with such a key too) or the list alone, of
    ``{"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}`` with the arguments as JSON text. A text
    without either makes no call; a call in any other shape (a bare JSON object, Python) is text.

    Raises:
        Malformed: a tag without its partner, JSON that ``read_json`` refuses, a call without a name or an object of
            arguments or with a key that calls do not have, both shapes at once, or two OpenAI lists.
    """
    try:
        if (whole := _whole_json(text)) is not None:
            return whole  # a tag inside a JSON string is a value, not a tag
        return _tagged(text) if OPENING in text or CLOSING in text else _openai(text)
    except NotJson as error:
        raise Malformed(f"a call is not JSON: {error}") from None


def _tagged(text: str) -> Reading:
    calls, around = [], []
    position = 0
    while (begin := text.find(OPENING, position)) >= 0:
        around.append(text[position:begin])
        value, end = read_json_at(text, begin + len(OPENING))
        closing = text.find(CLOSING, end)
        if closing < 0:
            raise Malformed(f"a {OPENING} is not closed")
        if text[end:closing].strip():
            raise Malformed(f"more than one JSON value stands in a {OPENING}")
        calls.append(_call(value))
        position = closing + len(CLOSING)
    around.append(text[position:])
    if any(CLOSING in part for part in around):
        raise Malformed(f"a {CLOSING} has no {OPENING}")
    if any(_OPENAI.search(part) for part in around):
        raise Malformed("calls stand in two shapes")
    return Reading(tuple(calls), is_alone=not "".join(around).strip())


def _whole_json(text: str) -> Reading | None:
    """The calls of a text that is one JSON value; None for a text that is none or merely begins like one."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = read_json(text)
    except NotJson:
        return None
    return Reading(tuple(_openai_call(item) for item in _listed(value)), is_alone=True)


def _openai(text: str) -> Reading:
    match = _OPENAI.search(text)
    if match is None:
        return Reading((), is_alone=not text.strip())
    value, end = read_json_at(text, match.start())
    if _OPENAI.search(text, end):
        raise Malformed("tool calls stand in two places")
    around = text[: match.start()] + text[end:]
    return Reading(tuple(_openai_call(item) for item in _listed(value)), is_alone=not around.strip())


def _listed(value: Any) -> list[Any]:
    """The items of ``tool_calls`` or of a list that holds calls; empty for any other JSON, which is an answer."""
    if isinstance(value, dict):
        listed = value.get("tool_calls")
        if listed is not None and not isinstance(listed, list):
            raise Malformed("tool_calls is not a list")
        return listed or []
    if isinstance(value, list) and any(isinstance(item, dict) and "function" in item for item in value):
        return value
    return []


def _openai_call(item: Any) -> Call:
    if not isinstance(item, dict) or not isinstance(item.get("function"), dict):
        raise Malformed("an item of the tool calls has no function")
    if item.get("type", "function") != "function":
        raise Malformed("the type of a tool call is not function")
    if unknown := sorted(set(item) - {"id", "type", "index", "function"}):
        raise Malformed(f"a tool call has the key {unknown[0][:40]!r}")
    function = item["function"]
    if not isinstance(function.get("arguments"), str):
        raise Malformed("the arguments of a tool call are not JSON text")
    return _call({**function, "arguments": read_json(function["arguments"])})


def _call(value: Any) -> Call:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise Malformed("a call has no name")
    if not isinstance(value.get("arguments"), dict):
        raise Malformed(f"the arguments of {value['name'][:40]!r} are not an object")
    if unknown := sorted(set(value) - {"id", "name", "arguments"}):
        raise Malformed(f"a call has the key {unknown[0][:40]!r}")
    return Call(value["name"], value["arguments"])
