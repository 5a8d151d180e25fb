"""Equality of mathematical answers."""

import re
from functools import cache
from typing import Any

from tasks.verifiers.answer_kinds import MathVerifier
from tasks.verifiers.extraction import after_reasoning, last_boxed, plain
from tasks.verifiers.quantities import is_equal, read_quantity, tidied
from tasks.verifiers.structure import bracketed, has_ellipsis, in_base, is_set, is_too_large, parts_of
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored

MAX_ANSWER_CHARACTERS = 2000
RELATIVE_TOLERANCE = 1e-9
"""Two irrational numbers are equal when they agree to this, relative to their size (never absolutely)."""


def verify(config: MathVerifier, item: ScoreItem) -> Verdict:
    r"""1.0 when the last balanced \boxed{...} after the reasoning equals the gold answer, else 0.0.

    Numbers are compared exactly, lists and sets item by item without order, tuples and intervals in order; the rest is
    left to math-verify, whose verdict on numbers is checked again by relative size (it rounds, so that 1/2^99 and 1/2^98
    are equal to it). An answer outside a box is not looked for. What is too large to evaluate is not equal.

    Source: math-verify 0.9.0 for parsing and symbolic equality; the rules before it are ours.
    """
    gold = unwrapped(item.answer)
    if reason := unreadable(gold):
        return unscored(reason)
    answer = last_boxed(after_reasoning(item.completion, config.reasoning_end))
    if answer is None:
        return scored(0.0, "no closed \\boxed{} after the reasoning")
    if not answer.strip():
        return scored(0.0, "the box is empty")
    if len(answer) > MAX_ANSWER_CHARACTERS:
        return scored(0.0, f"the box holds {len(answer)} characters")
    if same(gold, unwrapped(answer)):
        return scored(1.0)
    return scored(0.0, f"{answer[:80]!r} is not {gold[:80]!r}")


def unreadable(gold: str) -> str:
    """Why a gold answer can not be compared, "" when it can."""
    if not gold:
        return "the gold answer is empty"
    if re.fullmatch(r"\(?[A-Z]\)?", gold):
        return f"the gold answer {gold!r} is a letter, not mathematics; use the exact verifier"
    if is_too_large(gold):
        return f"the gold answer {gold[:40]!r} is too large to evaluate"
    return ""


def unwrapped(text: str) -> str:
    """Without a box around it, math delimiters, and a final full stop."""
    text = text.strip()
    if text.startswith("\\boxed{") and (inner := last_boxed(text)) is not None:
        text = inner.strip()
    for opening, closing in (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")):
        if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)].strip()
    return plain(text).rstrip(".").strip() if not has_ellipsis(text) else plain(text)


def same(gold: str, answer: str) -> bool:
    """Whether two answers are the same mathematics."""
    if canonical(gold) == canonical(answer):
        return True
    if has_ellipsis(gold) or has_ellipsis(answer):
        return False  # a sequence is described, not given: only the same description is the same answer
    left, right = read_quantity(gold), read_quantity(answer)
    if left is not None and right is not None:
        return is_equal(left, right)
    if "_" in gold or "_" in answer:
        based = [in_base(text) for text in (gold, answer)]
        if any(value is not None for value in based):
            values = [
                value if value is not None else _integer(text)
                for value, text in zip(based, (gold, answer), strict=True)
            ]
            return values[0] is not None and values[0] == values[1]
    if is_too_large(answer):
        return False
    wanted, given = bracketed(gold), bracketed(answer)
    if wanted is not None and given is not None:
        (opens, items, closes), (other_opens, others, other_closes) = wanted, given
        return (opens, closes, len(items)) == (other_opens, other_closes, len(others)) and all(
            same(item, other) for item, other in zip(items, others, strict=True)
        )
    return _same_lists(gold, answer)


def _same_lists(gold: str, answer: str) -> bool:
    wanted, given = parts_of(gold), parts_of(answer)
    if len(wanted) != len(given):
        return False
    if len(wanted) == 1:
        inner = [part if is_set(text) else text for part, text in ((wanted[0], gold), (given[0], answer))]
        return _same_symbolically(*inner) if inner == [gold, answer] else same(*inner)
    rest = list(given)
    for item in wanted:
        match = next((other for other in rest if same(item, other)), None)
        if match is None:
            return False
        rest.remove(match)
    return True


def _integer(text: str) -> int | None:
    found = read_quantity(text)
    return int(found.value) if found is not None and found.value.denominator == 1 else None


def canonical(text: str) -> str:
    """Spelling differences that mean nothing: spaces, \\left, \\dfrac, display style."""
    text = re.sub(r"\\(?:displaystyle|,|;|:|!| |quad)", "", tidied(text))
    return re.sub(r"\s+", "", re.sub(r"\\[dt]frac", r"\\frac", text))


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
    parsed = [library.parse(f"${_without_name(text)}$", parsing_timeout=None) for text in (gold, answer)]
    if not all(parsed) or not library.verify(*parsed, timeout_seconds=None):
        return False
    left, right = parsed[0][0], parsed[1][0]
    if getattr(left, "is_number", False) and getattr(right, "is_number", False):
        return _same_numbers(left, right)
    return True


def _without_name(text: str) -> str:
    """ "x = 5" is the answer 5 (an equation in more than a name stays one)."""
    return re.sub(r"^\s*[a-zA-Z]\s*=\s*(?=[^=]+$)", "", text)


def _same_numbers(left: Any, right: Any) -> bool:
    a, b = (complex(number.evalf(30)) if not _is_tiny_or_huge(number) else None for number in (left, right))
    if a is None or b is None:
        return bool((left / right).doit().equals(1))
    return abs(a - b) <= RELATIVE_TOLERANCE * max(abs(a), abs(b))


def _is_tiny_or_huge(number: Any) -> bool:
    """Outside what float64 holds well: the ratio is taken symbolically then."""
    size = abs(number.evalf(15))
    return bool(size != 0 and (size < 1e-250 or size > 1e250))
