"""The shape of a completion."""

import re
import unicodedata

from tasks.verifiers.text_kinds import FormatVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict, scored

BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
"""Hangul fillers and the empty braille pattern: letters by their Unicode category, nothing to the eye."""


def verify(config: FormatVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the tags stand exactly once each, in order, filled, with nothing but white space around, else 0.0.

    Counting the tags, in any spelling that a reader would take for one (another case, spaces, attributes), keeps a second
    block from hiding inside the first. A block that holds only blanks, zero-width or control characters is empty.

    Source: the format reward of DeepSeek-R1, arXiv:2501.12948, section 2.2.2, made strict.
    """
    text = item.completion
    for tag in config.tags:
        for mark in (f"<{tag}>", f"</{tag}>"):
            if text.count(mark) != 1:
                return scored(0.0, f"{mark} stands {text.count(mark)} times")
        if num_marks(text, tag) != 2:
            return scored(0.0, f"<{tag}> stands again in another spelling")
    blocks = r"\s*".join(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>" for tag in config.tags)
    match = re.fullmatch(rf"\s*{blocks}\s*", text, re.DOTALL)
    if match is None:
        return scored(0.0, "text stands around the tags, or they are out of order")
    if not all(is_visible(block) for block in match.groups()):
        return scored(0.0, "a tag is empty")
    return scored(1.0)


def num_marks(text: str, tag: str) -> int:
    """How many opening and closing tags of that name stand in ``text``, in any case, with spaces or attributes."""
    # [^<>]: what follows a name ends at the next bracket, so that a text of "<think" alone is read once.
    return sum(1 for _ in re.finditer(rf"<\s*/?\s*{re.escape(tag)}(?:[\s/][^<>]*)?>", text, re.IGNORECASE))


def is_visible(text: str) -> bool:
    """Whether anything in ``text`` can be seen: not only blanks, control, zero-width and unassigned characters."""
    return any(unicodedata.category(character)[0] not in "ZC" and character not in BLANK_LETTERS for character in text)
