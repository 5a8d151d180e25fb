"""The outer shape of a mathematical answer: lists, sets, tuples, intervals, unions, plus-minus, towers of powers."""

import math
import re

MAX_DIGITS = 10_000
"""A power or factorial with more decimal digits is not evaluated."""
MAX_EVALUATED_CHARACTERS = 2000
"""A longer expression is too large by itself."""

_WORDS = re.compile(
    r"\\(?:text|mbox|textrm)\s*\{\s*(?:and|or|그리고|또는|혹은)\s*\}|\b(?:and|or)\b|(?<=\s)(?:그리고|또는|혹은)(?=\s)"
)
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?!\d)")
_POWER = re.compile(r"(\d+)\s*(?:\^|\*\*)\s*(?:\{\s*-?\s*(\d+)\s*\}|(\d+)|\(\s*-?\s*(\d+)\s*\))")
_NOTHING = re.compile(r"\\\{\s*\\\}|\\(?:emptyset|varnothing)(?![a-zA-Z])|∅|\\text\{\s*(?:empty set|공집합)\s*\}")
_COMPARE = re.compile(
    r"(\\leqslant|\\geqslant|\\leq?(?![a-z])|\\geq?(?![a-z])|\\lt(?![a-z])|\\gt(?![a-z])|≤|≥|<=|>=|<|>)"
)
_LONG_SUM = re.compile(r"\\(?:sum|prod|[dt]?binom|choose)(?![a-zA-Z])")
_CUP = re.compile(r"\\cup(?![a-zA-Z])|∪")
_OPENING, _CLOSING = "([{", ")]}"


def parts_of(text: str) -> list[str]:
    """The items of a list that is written without brackets or in set braces: "1331 and 1728", "\\{1, 2\\}", "2,1".

    One item for anything else; tuples and intervals keep their brackets. A set has each item once; "1 \\pm a" is the two
    items "1 + a" and "1 - a".
    """
    text = text.strip()
    is_in_braces = is_set(text)
    if is_in_braces:
        text = text[2:-2]
    items = [item.strip() for item in split_top_level(_WORDS.sub(",", text)) if item.strip()]
    items = [signed for item in items for signed in _plus_and_minus(item)]
    return list(dict.fromkeys(items)) if is_in_braces else items


def is_set(text: str) -> bool:
    """Whether set braces stand around the whole text."""
    text = text.strip()
    return text.startswith("\\{") and text.endswith("\\}") and "\\}" not in text[2:-2] and len(text) >= 4


def is_empty_set(text: str) -> bool:
    return _NOTHING.fullmatch(text.strip()) is not None


def _plus_and_minus(text: str) -> list[str]:
    r"""Both values of "1 \pm a": every \pm of one text takes the same sign, and \mp the other one."""
    text = text.replace("±", "\\pm ").replace("∓", "\\mp ")
    if not re.search(r"\\pm(?![a-zA-Z])", text):
        return [text]
    return [
        re.sub(r"\\mp(?![a-zA-Z])", other, re.sub(r"\\pm(?![a-zA-Z])", sign, text)).strip().removeprefix("+").strip()
        for sign, other in (("+", "-"), ("-", "+"))
    ]


def bracketed(text: str) -> tuple[str, list[str], str] | None:
    """A tuple or interval as (opening, items, closing), None for anything else or a single item in brackets."""
    text = text.strip()
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]" or not _is_one_pair(text):
        return None
    items = split_top_level(text[1:-1])
    return (text[0], [item.strip() for item in items], text[-1]) if len(items) > 1 else None


def _is_one_pair(text: str) -> bool:
    """Whether the first bracket is closed by the last one: not so in (1,2) \\cup (3,4)."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth <= 0:
            return position == len(text) - 1
    return False


def union_of(text: str) -> list[str]:
    """The members of a union, one for anything else."""
    return [member.strip() for member in _CUP.split(text)]


def as_interval(text: str) -> tuple[str, str] | None:
    r"""(variable, interval) of an inequality in one letter: "2 \le x < 5" is [2,5), "x > 3" is (3,\infty)."""
    pieces = [piece.strip() for piece in _COMPARE.split(text)]
    if len(pieces) not in (3, 5) or not all(pieces):
        return None
    if len(pieces) == 3:
        left, sign, right = pieces
        if not _is_letter(left):
            left, sign, right = right, _turned(sign), left
        if not _is_letter(left) or _is_letter(right):
            return None
        closed = "=" in _plain_sign(sign)
        if _plain_sign(sign)[0] == "<":
            return left, f"(-\\infty,{right}{']' if closed else ')'}"
        return left, f"{'[' if closed else '('}{right},\\infty)"
    low, first, name, second, high = pieces
    if _plain_sign(first)[0] == ">":
        low, first, second, high = high, _turned(second), _turned(first), low
    if not _is_letter(name) or _plain_sign(first)[0] != "<" or _plain_sign(second)[0] != "<":
        return None
    opening, closing = ("[" if "=" in _plain_sign(first) else "("), ("]" if "=" in _plain_sign(second) else ")")
    return name, f"{opening}{low},{high}{closing}"


def _is_letter(text: str) -> bool:
    return re.fullmatch(r"[a-zA-Z]|\\(?:theta|alpha|beta|lambda)", text) is not None


def _plain_sign(sign: str) -> str:
    kind = "<" if sign[0] in "<≤" or sign[1:2] == "l" else ">"
    return kind + ("=" if sign in ("≤", "≥", "<=", ">=") or "e" in sign else "")


def _turned(sign: str) -> str:
    plain = _plain_sign(sign)
    return (">" if plain[0] == "<" else "<") + plain[1:]


def split_top_level(text: str) -> list[str]:
    """Split at commas and semicolons outside all brackets; a comma between thousands does not split."""
    inside = {position for match in _THOUSANDS.finditer(text) for position in range(match.start(), match.end())}
    items, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0 and character in ",;" and position not in inside:
            items.append(text[begin:position])
            begin = position + 1
    return [*items, text[begin:]]


def has_ellipsis(text: str) -> bool:
    return re.search(r"\.\.\.|\\[lcd]?dots|…", text) is not None


def in_base(text: str) -> int | None:
    """The value of a number with a base subscript: 101_2 is 5. None when there is no subscript or a digit too large."""
    match = re.fullmatch(r"\s*([0-9A-Fa-f]{1,400})_\{?\s*(?:\\text\{)?([0-9]{1,2})\}?\}?\s*", text)
    if match is None or not 2 <= int(match[2]) <= 36:
        return None
    try:
        return int(match[1], int(match[2]))
    except ValueError:
        return None


def is_too_large(text: str) -> bool:
    """Whether evaluating ``text`` would need a number of more than ``MAX_DIGITS`` digits: 10^{10^{10}}, (10!)!, 99999!.

    So are sums, products and binomials in which a number of five digits stands. Powers are worked out from the inside; a result that is itself an exponent or under a factorial must stay small. A
    text of more than ``MAX_EVALUATED_CHARACTERS`` characters is too large.
    """
    if len(text) > MAX_EVALUATED_CHARACTERS or re.search(r"!\s*[)}\]]*\s*!", text):
        return True
    while match := _POWER.search(text):
        base, exponent = int(match[1]), int(match[2] or match[3] or match[4])
        if base > 1 and (exponent > 10**6 or exponent * math.log10(base) > MAX_DIGITS):
            return True
        digits = exponent * math.log10(base) if base > 1 else 1.0
        value = str(base**exponent) if digits < 7 else "(10000000)"
        text = text[: match.start()] + value + text[match.end() :]
        if re.search(r"(?:\^|\*\*)\s*[{(]*\s*\(10000000\)", text):
            return True
    if _LONG_SUM.search(text) and re.search(r"\d{5}", text):
        return True
    return re.search(r"\d{5}[\s)}\]]*!", text) is not None
