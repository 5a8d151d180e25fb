"""Equality of numbers within a tolerance."""

import re
from fractions import Fraction

from tasks.verifiers.answer_kinds import NumericVerifier
from tasks.verifiers.extraction import after_reasoning, last_boxed, last_tagged, plain
from tasks.verifiers.quantities import read_quantity
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored

MAX_ANSWER_CHARACTERS = 200
LAST_NUMBER = re.compile(r"(?<![\w.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?%?", re.ASCII)


def verify(config: NumericVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the answer is a number within the tolerance of the gold one, else 0.0.

        |answer - gold| <= max(relative_tolerance * |gold|, absolute_tolerance)

    Both are read exactly (thousands, fractions, percent as hundredths, full-width digits, counters such as 42개) and
    compared as fractions, so that the tolerance is the only rounding; the bounds belong to it. A unit on both sides must
    be the same one. A number that is not finite is no number. GSM8K's gold ("... #### 42") is read at its end.

    Source: the comparison of math.isclose (PEP 485), relative to the gold answer alone.
    """
    gold = read_quantity(item.answer.rpartition("####")[2])
    if gold is None:
        return unscored(f"the gold answer {item.answer[:80]!r} is not a number")
    text = after_reasoning(item.completion, config.reasoning_end)
    if config.where == "last_number" and item.is_truncated:
        return scored(0.0, "cut before its end, so its last number is no answer")
    found = answer_text(config, text)
    if found is None:
        return scored(0.0, f"no answer was found ({config.where})")
    answer = read_quantity(found) if len(found) <= MAX_ANSWER_CHARACTERS else None
    if answer is None:
        return scored(0.0, f"{found[:80]!r} is not a number")
    if answer.unit and gold.unit and answer.unit != gold.unit:
        return scored(0.0, f"the unit {answer.unit[:40]!r} is not {gold.unit[:40]!r}")
    allowed = max(Fraction(config.relative_tolerance) * abs(gold.value), Fraction(config.absolute_tolerance))
    if abs(answer.value - gold.value) <= allowed:
        return scored(1.0)
    return scored(0.0, f"{found[:80]!r} is not within the tolerance of {item.answer[-80:]!r}")


def answer_text(config: NumericVerifier, text: str) -> str | None:
    """Where the settings say that the answer stands; None when nothing stands there."""
    if config.where == "tag":
        return last_tagged(text, config.answer_tag)
    if config.where == "box":
        return last_boxed(text)
    numbers = LAST_NUMBER.findall(plain(text))
    return numbers[-1] if numbers else None
