"""Equality of mathematical answers."""

import re
from functools import cache
from typing import Any

from tasks.verifiers.answer_kinds import MathVerifier
from tasks.verifiers.extraction import after_reasoning, gold_text, last_boxed, unwrapped
from tasks.verifiers.quantities import is_equal, read_quantity, tidied
from tasks.verifiers.structure import (
    as_interval,
    bracketed,
    has_ellipsis,
    in_base,
    is_empty_set,
    is_set,
    is_too_large,
    parts_of,
    union_of,
)
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored
from tasks.verifiers.words import is_text, same_text, split_unit, without_text_around

MAX_ANSWER_CHARACTERS = 2000
RELATIVE_TOLERANCE = 1e-14
"""Two irrational numbers are equal when they agree to this, relative to their size (never absolutely): decimals in a
product come as float64, and a rounding that a person would write is another number."""

_NAME = re.compile(r"\s*([a-zA-Z](?:_\{?\w\}?)?(?:\([a-z]\))?)\s*(?:=\s*(?=[^=<>]+$)|\\in(?![a-z])\s*)")


def verify(config: MathVerifier, item: ScoreItem) -> Verdict:
    r"""1.0 when the last balanced \boxed{...} after the reasoning equals the gold answer, else 0.0.

    Numbers are compared exactly, lists and sets item by item without order, tuples and intervals in order, words as text;
    the rest is left to math-verify, whose verdict on numbers is checked again by relative size (it rounds, so that 1/2^99
    and 1/2^98 are equal to it). An answer outside a box is not looked for. What is too large to evaluate, or makes the
    library raise, is not equal.

    Source: math-verify 0.9.0 for parsing and symbolic equality; the rules before it are ours.
    """
    gold = gold_text(item.answer)
    if reason := unreadable(gold):
        return unscored(reason)
    answer = last_boxed(after_reasoning(item.completion, config.reasoning_end))
    if answer is None:
        return scored(0.0, "no closed \\boxed{} after the reasoning")
    if not answer.strip():
        return scored(0.0, "the box is empty")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return scored(0.0, f"the box holds {len(answer)} characters")
    try:
        is_right = same(normal(gold), normal(unwrapped(answer)))
    except (MemoryError, ImportError):
        raise  # not the text's fault: the process is short of memory, or the library is not there
    except Exception as error:  # noqa: BLE001  # the library raises anything on model text, whose fault it then is
        return scored(0.0, f"{answer[:80]!r} can not be compared: {type(error).__name__}")
    return scored(1.0) if is_right else scored(0.0, f"{answer[:80]!r} is not {gold[:80]!r}")


def unreadable(gold: str) -> str:
    """Why a gold answer can not be compared, "" when it can."""
    if not gold:
        return "the gold answer is empty"
    if re.fullmatch(r"\(?[A-Z]\)?", gold):
        return f"the gold answer {gold!r} is a letter, not mathematics; use the choice or the exact verifier"
    if len(gold) > MAX_ANSWER_CHARACTERS:
        return f"the gold answer holds {len(gold)} characters"
    if is_too_large(gold):
        return f"the gold answer {gold[:40]!r} is too large to evaluate"
    return ""


def normal(text: str) -> str:
    """One spelling for what means the same: fractions, infinity, display style, delimiters inside the text."""
    text = without_text_around(tidied(text))
    if len(re.findall(r"(?<!\\)\$", text)) % 2 == 0:
        text = re.sub(r"(?<!\\)\$", "", text)
    text = re.sub(r"\\(?:displaystyle|textstyle|!|;|:|quad|qquad)(?![a-zA-Z])", " ", text)
    text = re.sub(r"\\[dtc]frac(?![a-zA-Z])", r"\\frac", text)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = text.replace("∞", "\\infty").replace("infinity", "\\infty")
    return re.sub(r"\+\s*\\infty", r"\\infty", text).strip()


def canonical(text: str) -> str:
    """Without the spaces and signs that mean nothing; a space between two digits stays."""
    text = re.sub(r"\\[,;:! ]|\\quad|\\\$|\^\s*\{?\s*\\circ\s*\}?|°", " ", text)
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text.strip())


def same(gold: str, answer: str) -> bool:
    """Whether two normal texts are the same mathematics."""
    if canonical(gold) == canonical(answer):
        return True
    if has_ellipsis(gold) or has_ellipsis(answer):
        return False  # a sequence is described, not given: only the same description is the same answer
    for compare in (_as_quantities, _as_empty_sets, _in_bases, _without_names, _without_units, _as_text):
        verdict = compare(gold, answer)
        if verdict is not None:
            return verdict
    if is_too_large(answer):
        return False
    return _same_structure(gold, answer)


def _as_quantities(gold: str, answer: str) -> bool | None:
    left, right = read_quantity(gold), read_quantity(answer)
    return None if left is None or right is None else is_equal(left, right)


def _as_empty_sets(gold: str, answer: str) -> bool | None:
    empty = [is_empty_set(text) for text in (gold, answer)]
    return all(empty) if any(empty) else None


def _in_bases(gold: str, answer: str) -> bool | None:
    """A number with a base subscript against another one, or against an integer in base ten."""
    based = [in_base(text) if "_" in text else None for text in (gold, answer)]
    if based == [None, None]:
        return None
    values = [value if value is not None else _integer(text) for value, text in zip(based, (gold, answer), strict=True)]
    return values[0] is not None and values[0] == values[1]


def _integer(text: str) -> int | None:
    found = read_quantity(text)
    return int(found.value) if found is not None and found.value.denominator == 1 else None


def _without_names(gold: str, answer: str) -> bool | None:
    """ "x = 5" and "x \\in [2,5)" are their right sides (an equation in more than a name stays one); x = 5 is not y = 5."""
    names = [match and match[1] for match in (_NAME.match(gold), _NAME.match(answer))]
    if not any(names):
        return None
    if all(names) and names[0] != names[1]:
        return False
    return same(_NAME.sub("", gold, count=1), _NAME.sub("", answer, count=1))


def _without_units(gold: str, answer: str) -> bool | None:
    """Units behind what is no plain number: 2\\sqrt{3} \\text{ cm}."""
    (left, unit), (right, other) = split_unit(gold), split_unit(answer)
    if not unit and not other:
        return None
    return (not unit or not other or unit == other) and same(left, right)


def _as_text(gold: str, answer: str) -> bool | None:
    """Words against words; a list with words in it is compared item by item."""
    if len(parts_of(gold)) > 1 or len(parts_of(answer)) > 1 or not (is_text(gold) or is_text(answer)):
        return None
    return same_text(gold, answer)


def _same_structure(gold: str, answer: str) -> bool:
    for members in (union_of, _relations):
        wanted, given = members(gold), members(answer)
        if len(wanted) > 1 or len(given) > 1:
            others = _relations if members is union_of else union_of
            wanted = wanted if len(wanted) > 1 else others(gold)
            given = given if len(given) > 1 else others(answer)
            return _match(wanted, given)
    left, right = as_interval(gold), as_interval(answer)
    if left and right and left[0] != right[0]:
        return _same_symbolically(gold, answer)
    if (left or bracketed(gold)) and (right or bracketed(answer)):
        return _same_bracketed(left[1] if left else gold, right[1] if right else answer)
    return _same_lists(gold, answer)


def _relations(text: str) -> list[str]:
    """The members of "x < 3 or x > 5"; one for anything but a list of inequalities."""
    parts = parts_of(text)
    return parts if len(parts) > 1 and all(as_interval(part) for part in parts) else [text]


def _same_bracketed(gold: str, answer: str) -> bool:
    wanted, given = bracketed(gold), bracketed(answer)
    if wanted is None or given is None:
        return False
    (opens, items, closes), (other_opens, others, other_closes) = wanted, given
    return (opens, closes, len(items)) == (other_opens, other_closes, len(others)) and all(
        same(item, other) for item, other in zip(items, others, strict=True)
    )


def _same_lists(gold: str, answer: str) -> bool:
    wanted, given = parts_of(gold), parts_of(answer)
    if len(wanted) != len(given):
        return False
    if len(wanted) == 1:
        inner = [part if is_set(text) else text for part, text in ((wanted[0], gold), (given[0], answer))]
        return _same_symbolically(*inner) if inner == [gold, answer] else same(*inner)
    return _match(wanted, given)


def _match(wanted: list[str], given: list[str]) -> bool:
    """Whether the items can be paired, in any order."""
    if len(wanted) != len(given):
        return False
    rest = list(given)
    for item in wanted:
        match = next((other for other in rest if same(item, other)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


@cache
def _math_verify() -> Any:
    import logging

    import math_verify  # imported here, in the child: it costs seconds

    # It warns on every call that its own time limit is off; ours is the process that runs this.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return math_verify


def _same_symbolically(gold: str, answer: str) -> bool:
    library = _math_verify()
    # Wrapped before parsing: outside math delimiters only the last number would be read.
    parsed = [library.parse(f"${text}$", parsing_timeout=None) for text in (gold, answer)]
    if not all(parsed) or not library.verify(*parsed, timeout_seconds=None):
        return False
    left, right = parsed[0][0], parsed[1][0]
    if getattr(left, "is_number", False) and getattr(right, "is_number", False):
        return _same_numbers(left, right)
    return True


def _same_numbers(left: Any, right: Any) -> bool:
    a, b = left.evalf(40), right.evalf(40)
    if a == 0 or b == 0:
        return bool((left - right).equals(0))
    return bool(abs(a - b) <= RELATIVE_TOLERANCE * max(abs(a), abs(b)))
