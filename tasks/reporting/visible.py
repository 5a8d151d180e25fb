"""Text of unknown origin, made visible: what would hide, turn around or break is shown as its code."""

import re

MAX_CHARACTERS = 1500

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]"
)
"""Control characters but tab and line feed; marks that set the direction of writing; spaces without width. The joiners
U+200C and U+200D stay: scripts and emoji need them."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """Text as a page may show it: controls and marks of direction as <U+202E>, lone surrogates as U+FFFD, at most
    ``MAX_CHARACTERS`` of it with a note of what was left out. It is not escaped: that is the template's work.
    """
    shown = text[:MAX_CHARACTERS].replace("\r\n", "\n")
    shown = _SURROGATE.sub("\ufffd", _CONTROL.sub(lambda match: f"<U+{ord(match[0]):04X}>", shown))
    return shown if len(text) <= MAX_CHARACTERS else f"{shown} … ({len(text)} characters in all)"
