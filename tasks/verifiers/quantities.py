"""Numbers as people write them, read exactly: 1,000  1{,}000  \\frac{1}{2}  50\\%  1.5e3  \\$1,234.00  42개  ４２."""

import re
from dataclasses import dataclass
from fractions import Fraction

from tasks.verifiers.extraction import plain

MAX_EXPONENT = 400
"""Largest power of ten that is written out (float64 ends at 308)."""

_UNIT = r"(?P<unit>(?:\s*\\(?:text|mathrm|textrm|mbox)\s*\{[^{}]*\})|\s*[가-힣]+(?:\s?[가-힣]+)*|\s*(?:cm|mm|km|m|kg|g|ml|l|s|h|hours?|minutes?|days?|dollars?|cents?|degrees?|units?|miles?|feet|inches))?"
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:(?P<top>{_DIGITS})(?:\s*/\s*(?P<bottom>\d+))?"
    rf"(?:(?:e|E|\s*(?:\\times|\\cdot|\*|x)\s*10\^)\{{?(?P<power>[+-]?\d+)\}}?)?)\s*(?P<percent>%?)" + _UNIT + r"\.?"
)
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(-?\d+)\s*\}|(\d))")


@dataclass(frozen=True)
class Quantity:
    """An exact value, and the unit it was written with ("" for none)."""

    value: Fraction
    unit: str


def read_quantity(text: str) -> Quantity | None:
    """The number that ``text`` is, None when it is anything else. A percent is a hundredth: 50% is 1/2, not 50."""
    match = _NUMBER.fullmatch(tidied(text))
    if match is None:
        return None
    power = int(match["power"] or 0)
    bottom = int(match["bottom"] or 1)
    if abs(power) > MAX_EXPONENT or bottom == 0:
        return None
    value = Fraction(match["top"].replace(",", "").rstrip(".") or "0") / bottom * Fraction(10) ** power
    if match["percent"]:
        value /= 100
    return Quantity(-value if match["sign"] == "-" else value, _unit_name(match["unit"] or ""))


def is_equal(left: Quantity, right: Quantity) -> bool:
    """Exactly the same value, and not two different units. (1/3 is not 0.333333: a rounding is another number.)"""
    return left.value == right.value and (not left.unit or not right.unit or left.unit == right.unit)


def tidied(text: str) -> str:
    """LaTeX spacing, currency signs and thousands marks taken out, fractions written with a slash."""
    text = plain(text).replace("\u2212", "-").replace("{,}", ",").replace("\\$", "").replace("$", "")
    text = re.sub(r"\\[!,;: ](?=,?\d{3})", "", text)  # 1\,000 and 1\!,000
    text = text.replace("\\left", "").replace("\\right", "").replace("\\%", "%").replace("^\\circ", "").replace("°", "")
    text = re.sub(r"^\{(.*)\}$", r"\1", text.strip())
    text = re.sub(r"(\d),\\!(?=\d{3})", r"\1,", text)
    text = _FRACTION.sub(_slash, text)
    return re.sub(r"^\((-?\d+/\d+)\)$", r"\1", text.strip())


def _slash(match: re.Match[str]) -> str:
    top, bottom = int(match[1] or match[2]), int(match[3] or match[4])
    sign = "-" if (top < 0) != (bottom < 0) else ""
    return f"{sign}{abs(top)}/{abs(bottom)}"


def _unit_name(unit: str) -> str:
    return re.sub(r"\\(?:text|mathrm|textrm|mbox)\s*\{([^{}]*)\}", r"\1", unit).strip().lower()
