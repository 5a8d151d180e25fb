"""Equality of what a program printed and what it should have."""

import math
import re

TOLERANCE = 1e-6
"""Absolute or relative; of numbers that are expected with a point or an exponent."""

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
MAX_NUMBER_CHARACTERS = 400


def difference(expected: str, printed: bytes) -> str:
    """Where the output differs, "" when it is the same.

    Blank lines at the end and blanks around a line do not count, and runs of blanks are one. Numbers that are expected as
    decimals agree to 1e-6; whole numbers and words are the same text.
    """
    try:
        text = printed.decode("utf-8")
    except UnicodeDecodeError:
        return "the output is not UTF-8"
    wanted, found = _lines(expected), _lines(text)
    for number, (wanted_line, found_line) in enumerate(zip(wanted, found, strict=False), 1):
        if not _same_line(wanted_line, found_line):
            return f"line {number} is {found_line[:60]!r}, not {wanted_line[:60]!r}"
    return "" if len(wanted) == len(found) else f"{len(found)} lines, not {len(wanted)}"


def _lines(text: str) -> list[str]:
    return text.rstrip().split("\n")


def _same_line(expected: str, printed: str) -> bool:
    wanted, found = expected.split(), printed.split()
    return len(wanted) == len(found) and all(map(_same_word, wanted, found))


def _same_word(expected: str, printed: str) -> bool:
    if expected == printed:
        return True
    if max(len(expected), len(printed)) > MAX_NUMBER_CHARACTERS or not set(".eE").intersection(expected):
        return False
    if not NUMBER.fullmatch(expected) or not NUMBER.fullmatch(printed):
        return False
    wanted, found = float(expected), float(printed)
    if not (math.isfinite(wanted) and math.isfinite(found)):
        return False
    return math.isclose(wanted, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
