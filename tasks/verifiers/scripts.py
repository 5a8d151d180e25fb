"""Which scripts a text is written in, by its letters."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

FILLERS = "\u115f\u1160\u3164\uffa0"
"""Hangul letters that nobody sees."""

SCRIPTS = {
    "HANGUL": "hangul",
    "LATIN": "latin",
    "GREEK": "greek",
    "CJK": "han",
    "IDEOGRAPHIC": "han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "KATAKANA-HIRAGANA": "kana",
    "CYRILLIC": "cyrillic",
}
"""First word of a letter's Unicode name -> script."""

LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]{2,}")
HANGUL_WORD = re.compile(r"[\uac00-\ud7a3]+")
BETWEEN_WORDS = re.compile(r"[\s,.;:!?'\u2018\u2019\"\u201c\u201d()*_/-]*")


class LatinWords(NamedTuple):
    longest_run: int
    """Latin words in a row: nothing but spaces and punctuation between them."""
    share: float
    """Of all Latin and Hangul words; 0 without any."""


@cache
def script_of(letter: str) -> str | None:
    """The script of one character; None when it is no letter (digits, signs, emoji, marks, invisible fillers).

    Letters in another dress (full width, bold mathematical, superscript) count as what they look like.

    Source: Unicode, general category L and character names; NFKC, UAX #15.
    """
    if not letter.isalpha() or letter in FILLERS:
        return None
    plain = unicodedata.normalize("NFKC", letter)[0]
    return SCRIPTS.get(unicodedata.name(plain, "").partition(" ")[0], "other")


def count_scripts(text: str) -> Counter[str]:
    """Letters of each script."""
    counts: Counter[str] = Counter()
    for character, number in Counter(text).items():
        if script := script_of(character):
            counts[script] += number
    return counts


def hangul_share(counts: Counter[str]) -> float | None:
    """Hangul letters / all letters, in [0, 1]; None without letters."""
    total = counts.total()
    return counts["hangul"] / total if total else None


def latin_words(text: str, allowed: Collection[str]) -> LatinWords:
    """How much Latin there is, in words of at least two letters; ``allowed`` (in lower case) counts as Hangul words do."""
    dressed = {ord(each): unicodedata.normalize("NFKC", each) for each in set(text) if _is_dressed(each)}
    text = text.translate(dressed)
    num_latin = num_allowed = longest = run = 0
    end = -1
    for match in LATIN_WORD.finditer(text):
        if match[0].lower() in allowed:
            num_allowed += 1
            continue
        num_latin += 1
        run = run + 1 if end >= 0 and BETWEEN_WORDS.fullmatch(text, end, match.start()) else 1
        longest = max(longest, run)
        end = match.end()
    total = num_latin + num_allowed + sum(1 for _ in HANGUL_WORD.finditer(text))
    return LatinWords(longest, num_latin / total if total else 0.0)


def _is_dressed(character: str) -> bool:
    return ord(character) > 0x24F and script_of(character) == "latin"
