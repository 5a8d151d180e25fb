"""Which language a text is in: its script first, then, where languages share a script, langdetect."""

import unicodedata
from collections import Counter
from functools import cache
from typing import Any

SCRIPTS: dict[str, str] = {
    "ko": "HANGUL", "ja": "HIRAGANA KATAKANA CJK", "zh": "CJK", "zh-cn": "CJK", "zh-tw": "CJK", "th": "THAI", "he": "HEBREW",
    "el": "GREEK", "ta": "TAMIL", "te": "TELUGU", "kn": "KANNADA", "ml": "MALAYALAM", "gu": "GUJARATI", "pa": "GURMUKHI",
    "bn": "BENGALI", "hi": "DEVANAGARI", "mr": "DEVANAGARI", "ne": "DEVANAGARI", "ar": "ARABIC", "fa": "ARABIC",
    "ur": "ARABIC", "ru": "CYRILLIC", "uk": "CYRILLIC", "bg": "CYRILLIC", "mk": "CYRILLIC",
    **dict.fromkeys(
        ["af", "ca", "cs", "cy", "da", "de", "en", "es", "et", "fi", "fr", "hr", "hu", "id", "it", "lt", "lv", "nl", "no", "pl", "pt", "ro", "sk", "sl", "so", "sq", "sv", "sw", "tl", "tr", "vi"], "LATIN"
    ),
}  # fmt: skip
"""Language -> the first words of its letters' Unicode names; every language that langdetect knows, and "zh" for both."""

MIN_SHARE = 0.7
"""Of the letters; the rest may be names and terms in another script."""
MIN_KANA_SHARE = 0.1
"""Japanese has kana; a text of Han characters with fewer is Chinese."""
SAMPLE = 5_000
"""langdetect sees so many characters of the beginning and of the end."""


def is_in(text: str, language: str) -> bool:
    """Whether a text is in the language, a key of ``SCRIPTS``.

    At least ``MIN_SHARE`` of its letters belong to the language's script. Where no other language of ``SCRIPTS`` has that
    script (Korean, Thai, Greek...) this decides, and so it does between Japanese and Chinese by kana. Else langdetect must
    name the language for the text in lower case (it takes capitals for other languages), with a fixed seed; it errs on a
    few words. A text without letters is in no language.

    Source: langdetect 1.0.9 (Nakatani), as IFEval uses it, arXiv:2311.07911; there a text that it can not read passes.
    """
    counts = letters_by_script(text)
    num_letters = sum(counts.values())
    own = SCRIPTS[language].split()
    if not num_letters or sum(counts[script] for script in own) < MIN_SHARE * num_letters:
        return False
    if own[-1] == "CJK":
        has_kana = counts["HIRAGANA"] + counts["KATAKANA"] >= MIN_KANA_SHARE * num_letters
        if has_kana != (language == "ja") or language in ("ja", "zh"):
            return has_kana == (language == "ja")
    elif sum(scripts == SCRIPTS[language] for scripts in SCRIPTS.values()) == 1:
        return True
    return _detected(text) == language


def letters_by_script(text: str) -> Counter[str]:
    """How many letters of each script a text has, by the first word of their names ("LATIN", "HANGUL", "CJK")."""
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if character.isalpha():
            counts[_script(character)] += count
    return counts


@cache
def _script(character: str) -> str:
    name = unicodedata.name(character, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    return name.partition(" ")[0]


@cache
def _langdetect() -> Any:
    import langdetect  # imported here, in the child: its profiles take a second

    langdetect.DetectorFactory.seed = 0  # it draws at random otherwise
    return langdetect


def _detected(text: str) -> str:
    library = _langdetect()
    sample = text if len(text) <= 2 * SAMPLE else f"{text[:SAMPLE]} {text[-SAMPLE:]}"
    try:
        return str(library.detect(sample.lower()))
    except library.LangDetectException:  # nothing in it looks like any language
        return ""
