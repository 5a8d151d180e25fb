"""Any string a model can emit, made storable as UTF-8."""

import re

_SURROGATE_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _join_pair(match: re.Match[str]) -> str:
    high, low = match.groups()
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))


def repair(text: str) -> tuple[str, bool]:
    """Valid UTF-8 text and whether it had to be changed.

    A surrogate pair kept as two code units becomes its code point; a lone surrogate becomes U+FFFD. Everything else,
    NUL and very long text included, stays as it is (nothing is normalised here: the text belongs to its token ids).
    """
    if text.isascii():
        return text, False
    repaired = _LONE_SURROGATE.sub("\ufffd", _SURROGATE_PAIR.sub(_join_pair, text))
    return repaired, repaired != text
