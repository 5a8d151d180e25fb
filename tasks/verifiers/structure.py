"""The outer shape of a mathematical answer: lists, sets, tuples, towers of powers."""

import math
import re

MAX_DIGITS = 10_000
"""A power or factorial with more decimal digits is not evaluated."""

_WORDS = re.compile(r"\\(?:text|mbox|textrm)\s*\{\s*(and|or)\s*\}|\b(and|or)\b")
_POWER = re.compile(r"(\d+)\s*(?:\^|\*\*)\s*(?:\{\s*(\d+)\s*\}|(\d+)|\(\s*(\d+)\s*\))")
_OPENING, _CLOSING = "([{", ")]}"


def parts_of(text: str) -> list[str]:
    """The items of a list that is written without brackets or in set braces: "1331 and 1728", "\\{1, 2\\}", "2,1".

    One item for anything else; tuples and intervals keep their brackets.
    """
    text = text.strip()
    if text.startswith("\\{") and text.endswith("\\}"):
        text = text[2:-2]
    return [item.strip() for item in split_top_level(_WORDS.sub(",", text)) if item.strip()]


def is_set(text: str) -> bool:
    return text.strip().startswith("\\{") and text.strip().endswith("\\}")


def bracketed(text: str) -> tuple[str, list[str], str] | None:
    """A tuple or interval as (opening, items, closing), None for anything else or a single item in brackets."""
    text = text.strip()
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]":
        return None
    items = split_top_level(text[1:-1])
    return (text[0], [item.strip() for item in items], text[-1]) if len(items) > 1 else None


def split_top_level(text: str) -> list[str]:
    """Split at commas and semicolons outside all brackets; a comma between thousands does not split."""
    items, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0 and character in ",;" and not _is_thousands_comma(text, position):
            items.append(text[begin:position])
            begin = position + 1
    return [*items, text[begin:]]


def _is_thousands_comma(text: str, position: int) -> bool:
    before = re.search(r"(?<![\d.])\d{1,3}(?:,\d{3})*$", text[:position])
    return text[position] == "," and before is not None and re.match(r"\d{3}(?!\d)", text[position + 1 :]) is not None


def has_ellipsis(text: str) -> bool:
    return re.search(r"\.\.\.|\\[lcd]?dots|…", text) is not None


def in_base(text: str) -> int | None:
    """The value of a number with a base subscript: 101_2 is 5. None when there is no subscript or a digit too large."""
    match = re.fullmatch(r"\s*([0-9A-Fa-f]+)_\{?\s*(?:\\text\{)?(\d{1,2})\}?\}?\s*", text)
    if match is None or not 2 <= int(match[2]) <= 36:
        return None
    try:
        return int(match[1], int(match[2]))
    except ValueError:
        return None


def is_too_large(text: str) -> bool:
    """Whether evaluating ``text`` would need a number of more than ``MAX_DIGITS`` digits: 10^{10^{10}}, (10!)!, 99999!.

    Powers are worked out from the inside; a result that is itself an exponent or under a factorial must stay small.
    """
    if re.search(r"\d{5,}\s*!|!\s*[)}\]]*\s*!", text):
        return True
    while match := _POWER.search(text):
        base, exponent = int(match[1]), int(match[2] or match[3] or match[4])
        digits = exponent * math.log10(base) if base > 1 else 1.0
        if digits > MAX_DIGITS:
            return True
        value = str(base**exponent) if digits < 7 else "(10000000)"
        text = text[: match.start()] + value + text[match.end() :]
        if re.search(r"(?:\^|\*\*)\s*[{(]*\s*\(10000000\)|\(10000000\)\s*!", text):
            return True
    return False
