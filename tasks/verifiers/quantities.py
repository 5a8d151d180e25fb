"""Numbers as people write them, read exactly: 1,000  1{,}000  \\frac{1}{2}  3\\frac12  50\\%  1.5e3  \\$1,234.00  42개  ４２."""

import re
from dataclasses import dataclass
from fractions import Fraction

from tasks.verifiers.extraction import plain
from tasks.verifiers.units import leading_currency, read_unit

MAX_NUMBER_CHARACTERS = 2000
"""A longer text is not read as a number (Python itself refuses integers of more than 4300 digits)."""
MAX_EXPONENT = 400
"""Largest power of ten that is written out (float64 ends at 308)."""

DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?: \d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+"
"""Digits with thousands marks (commas or spaces) or without, and a decimal part."""
POWER_OF_TEN = r"(?:[eE]|\s*(?:\\times|\\cdot|\*|x|×|·)\s*10\^)\{?(?P<power>[+-]?\d{1,6})\}?"

_SIGN = re.compile(r"[+-]?\s*")
_MIXED = re.compile(r"(?P<whole>\d+)\s+(?P<top>\d+)\s*/\s*(?P<bottom>\d+)")
_REPEATING = re.compile(r"(?P<whole>\d*)\.(?P<fixed>\d*)\\(?:overline|bar)\s*\{?(?P<period>\d+)\}?")
_PLAIN = re.compile(rf"(?P<top>{DIGITS})(?:\s*/\s*(?P<bottom>\d+))?(?:{POWER_OF_TEN})?")
_SCALED = re.compile(r"(?P<digits>\d[\d,]*(?:\.\d+)?)\s*(?P<small>[천백십])?\s*(?P<big>조(?!각)|억|만(?![큼에]))?\s*")
_SMALL = {"천": 1000, "백": 100, "십": 10, None: 1}
_BIG = {"조": 10**12, "억": 10**8, "만": 10**4}
_PERCENT = re.compile(r"\s*(?:\\?%|(?:\\(?:text|mathrm)\s*\{)?\s*(?:percent|퍼센트|프로)(?![A-Za-z가-힣])\s*\}?)\s*")
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(-?\d+)\s*\}|(\d))(?!\d)")
_MINUS_SIGNS = str.maketrans(dict.fromkeys("\u2212\u2012\u2013\ufe63", "-"))
_ANY_DIGIT = re.compile(r"\d")


@dataclass(frozen=True)
class Quantity:
    """An exact value, and the unit it was written with ("" for none)."""

    value: Fraction
    unit: str


def read_quantity(text: str) -> Quantity | None:
    """The number that ``text`` is, None when it is anything else. A percent is a hundredth: 50% is 1/2, not 50.

    Mixed numbers (3\\frac12 and 3 1/2), repeating decimals (0.\\overline{3}) and Korean scales (1만 5천) are read too;
    not-a-number and infinity are not numbers.
    """
    if len(text) > MAX_NUMBER_CHARACTERS or not _ANY_DIGIT.search(plain(text)):
        return None
    currency, rest = leading_currency(_slashed(tidied(text)))
    sign = _SIGN.match(rest)
    assert sign is not None  # it also matches nothing
    if not currency and sign[0]:
        currency, after = leading_currency(rest[sign.end() :])
        rest = sign[0] + after
    found = _read_value(rest[sign.end() :])
    if found is None:
        return None
    value, rest = found
    percent = _PERCENT.match(rest)
    if percent is not None:
        value, rest = value / 100, rest[percent.end() :]
    unit = read_unit(rest)
    if unit is None or (currency and unit not in ("", currency)):
        return None
    return Quantity(-value if "-" in sign[0] else value, currency or unit)


def is_equal(left: Quantity, right: Quantity) -> bool:
    """Exactly the same value, and not two different units. (1/3 is not 0.333333: a rounding is another number.)"""
    return left.value == right.value and have_same_unit(left, right)


def have_same_unit(left: Quantity, right: Quantity) -> bool:
    """Whether the units agree; a number without a unit agrees with every unit."""
    return not left.unit or not right.unit or left.unit == right.unit


def tidied(text: str) -> str:
    """Without what only the typesetting needs: \\left, spacing between thousands, one pair of outer braces."""
    text = plain(text).translate(_MINUS_SIGNS).replace("{,}", ",")
    text = re.sub(r"\\[!,;: ](?=,?\d{3})|(?<=\d)~(?=\d{3})", "", text)  # 1\,000, 1\!,000 and 1~000
    text = re.sub(r"\\left(?![a-z])|\\right(?![a-z])", "", text)
    text = re.sub(r"(\d),\\!(?=\d{3})", r"\1,", text)
    return re.sub(r"^\{([^{}]*)\}$", r"\1", text.strip())


def _slashed(text: str) -> str:
    """Fractions of integers written with a slash; a space keeps the whole part of a mixed number apart from it."""
    return re.sub(r"^\((-?\d+/\d+)\)$", r"\1", _FRACTION.sub(_slash, text).strip())


def _slash(match: re.Match[str]) -> str:
    top, bottom = int(match[1] or match[2]), int(match[3] or match[4])
    sign = "-" if (top < 0) != (bottom < 0) else ""
    is_mixed = match.string[: match.start()][-1:].isdigit()
    return f"{' ' if is_mixed else ''}{sign}{abs(top)}/{abs(bottom)}"


def _read_value(text: str) -> tuple[Fraction, str] | None:
    """The number at the beginning of ``text`` (without a sign) and what follows it."""
    if found := _scaled(text):
        return found
    if match := _MIXED.match(text):
        if int(match["bottom"]) == 0:
            return None
        return int(match["whole"]) + Fraction(int(match["top"]), int(match["bottom"])), text[match.end() :]
    if match := _REPEATING.match(text):
        fixed, period = match["fixed"], match["period"]
        value = Fraction(int((match["whole"] or "0") + fixed), 10 ** len(fixed))
        return value + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed)), text[match.end() :]
    match = _PLAIN.match(text)
    if match is None:
        return None
    power, bottom = int(match["power"] or 0), int(match["bottom"] or 1)
    if abs(power) > MAX_EXPONENT or bottom == 0:
        return None
    top = Fraction(match["top"].replace(",", "").replace(" ", "").rstrip("."))
    return top / bottom * Fraction(10) ** power, text[match.end() :]


def _scaled(text: str) -> tuple[Fraction, str] | None:
    """A number with Korean scales: 3만 5천 is 35000, 1억 2천만 is 120000000. None without any scale, or out of order."""
    total, section, position = Fraction(0), Fraction(0), 0
    last_big, last_small = 10**16, 10**4
    num_scales = 0
    while match := _SCALED.match(text, position):
        small, big = _SMALL[match["small"]], _BIG.get(match["big"], 1)
        if small >= last_small or big >= last_big:
            return None
        section += Fraction(match["digits"].replace(",", "")) * small
        last_small = small
        if big > 1:
            total, section = total + section * big, Fraction(0)
            last_big, last_small = big, 10**4
        position = match.end()
        num_scales += (match["small"] is not None) + (big > 1)
        if match["small"] is None and big == 1:
            break  # a number without a scale is the last one
    if not num_scales:
        return None
    return total + section, text[position:]
