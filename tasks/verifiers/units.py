"""What stands behind (or, for money, before) a number."""

import re

_WRAPPED = re.compile(r"\\(?:text|mathrm|textrm|textnormal|mbox|rm|textbf|mathbf)\s*\{([^{}]*)\}")
_EXPONENT = re.compile(r"\s*\^\s*\{?(\d)\}?")
_SPACES = re.compile(r"\\[,;:! ]|~|\s+")
_KOREAN = re.compile(
    r"[가-힣]+(?: [가-힣]+)*"
)  # a space is required between words: an optional one backtracks for ever
_COPULA = re.compile(r"(?:입니다|이에요|예요|이다)$")
_ENGLISH = re.compile(r"[a-z]+(?:[ /.-][a-z]+){0,3}\.?\d?")
_DEGREE = re.compile(r"^(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|°)")

NOT_A_UNIT = {"and", "or", "not", "to", "is", "more", "less", "than", "least", "most", "about", "if"}
NOT_A_KOREAN_UNIT = ("이상", "이하", "미만", "초과", "또는", "혹은", "아니", "아닌", "이나")
"""5 이상 is "at least 5", not a count of something."""

BARE = {
    "cm", "mm", "km", "m", "kg", "g", "mg", "ml", "l", "s", "h", "min", "hour", "minute", "second", "day", "week", "month",
    "year", "dollar", "cent", "degree", "unit", "mile", "foot", "inch", "meter", "metre", "mph", "won", "liter", "litre",
    "gram", "kilogram", "pound", "yard", "people", "euro", "yen",
}  # fmt: skip
"""English units that are read without \\text{} around them, in the singular."""

SAME = {
    "won": "원", "feet": "foot", "inches": "inch", "달러": "dollar", "유로": "euro", "엔": "yen", "도": "degree",
    "centimeter": "cm", "centimetre": "cm", "millimeter": "mm", "kilometer": "km", "meter": "m", "metre": "m",
    "미터": "m", "킬로미터": "km", "센티미터": "cm", "그램": "g", "킬로그램": "kg", "gram": "g", "kilogram": "kg",
    "hr": "hour", "h": "hour", "시간": "hour", "분": "minute", "min": "minute", "초": "second", "s": "second",
    "square inch": "inch2", "square foot": "foot2", "square cm": "cm2", "square meter": "m2", "square m": "m2",
    "square unit": "unit2", "cubic inch": "inch3", "cubic foot": "foot3", "cubic cm": "cm3", "cubic unit": "unit3",
}  # fmt: skip
"""Names of one unit; nothing is converted (5 m is not 500 cm)."""

CURRENCIES = {"₩": "원", "\\$": "dollar", "$": "dollar", "US$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
_CURRENCY = re.compile("|".join(re.escape(sign) for sign in sorted(CURRENCIES, key=len, reverse=True)))


def leading_currency(text: str) -> tuple[str, str]:
    """The unit of the currency sign that ``text`` begins with ("" for none), and the text behind it."""
    match = _CURRENCY.match(text)
    return (CURRENCIES[match[0]], text[match.end() :].lstrip()) if match else ("", text)


def read_unit(text: str) -> str | None:
    """The unit that ``text`` is, in one spelling; "" for none (a final full stop is none), None when it is something else.

    Korean words, a degree sign, a currency sign, known English units, and any English words in \\text{...}. The copula of
    "42개입니다" is taken off.
    """
    inner, num_wrapped = _WRAPPED.subn(r" \1", text)
    inner = _SPACES.sub(" ", inner).strip()
    inner = inner.removesuffix(".").strip()
    if not inner:
        return ""
    if inner in CURRENCIES:
        return CURRENCIES[inner]
    if degree := _DEGREE.match(inner):
        return "degree" if not inner[degree.end() :].strip() else None
    inner = _EXPONENT.sub(r"\1", inner)
    if _KOREAN.fullmatch(inner):
        if any(word in inner for word in NOT_A_KOREAN_UNIT):
            return None
        name = _COPULA.sub("", inner.replace(" ", ""))
        return SAME.get(name, name)
    name = inner.lower()
    if not _ENGLISH.fullmatch(name) or NOT_A_UNIT.intersection(re.split(r"[ /.-]", name)):
        return None
    name = _singular(name.rstrip("."))
    if not num_wrapped and name.rstrip("23") not in BARE and name not in SAME:
        return None
    base = name.rstrip("23")
    return SAME.get(name) or SAME.get(base, base) + name[len(base) :]


def _singular(name: str) -> str:
    if name in SAME:
        return SAME[name] if name in ("feet", "inches") else name
    match = re.fullmatch(r"(.*?)(\d?)", name)
    assert match is not None
    word, power = match[1], match[2]
    for plural, single in (("inches", "inch"), ("feet", "foot")):
        if word.endswith(plural):
            return word.removesuffix(plural) + single + power
    is_plural = len(word) > 2 and word.endswith("s") and not word.endswith("ss")
    return (word[:-1] if is_plural else word) + power
