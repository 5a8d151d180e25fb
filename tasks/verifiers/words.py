"""Answers that are words, or carry them: \\text{Evelyn}, no solution, 2\\sqrt{3} \\text{ cm}."""

import re

from tasks.verifiers.units import read_unit

_MACRO = re.compile(r"\\(?:text|mathrm|textrm|textnormal|textbf|textit|mbox|mathbf)\s*\{([^{}]*)\}")
_HANGUL = re.compile(r"[가-힣]")
_WORDS = re.compile(r"[A-Za-z][A-Za-z' .-]*")
_TRAILING_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\s*\{[^{}]*\}(?:\s*\^\s*\{?\d\}?)?\s*\.?$")


SHORT_WORDS = {"yes", "no", "odd"}


def is_text(text: str) -> bool:
    """Whether ``text`` is to be read as words: it holds Hangul or \\text{} with a word, or is a word of four letters or more.

    Shorter runs of letters are products (ab = ba).
    """
    if _HANGUL.search(text) or re.search(r"\\(?:text|textrm|textbf|mbox)\s*\{[^{}]*[A-Za-z]", text):
        return True
    if text.casefold() in SHORT_WORDS:
        return True
    return _WORDS.fullmatch(text) is not None and re.search(r"[A-Za-z]{4}", text) is not None


def same_text(gold: str, answer: str) -> bool:
    """Equality without case, spaces, \\text{} and the brackets or stops around it: \\text{(B)} is B."""
    return _bare(gold) == _bare(answer) != ""


def without_text_around(text: str) -> str:
    """What stands in one \\text{} (or \\mathbf{} ...) around the whole text when it holds a digit; else the text itself."""
    match = _MACRO.fullmatch(text.strip())
    return match[1].strip() if match and re.search(r"\d", match[1]) else text


def split_unit(text: str) -> tuple[str, str]:
    """The text before a final \\text{unit}, and the unit in one spelling; the whole text and "" without one."""
    match = _TRAILING_TEXT.search(text)
    if match is None or not text[: match.start()].strip():
        return text, ""
    unit = read_unit(match[0])
    return (text[: match.start()].strip(), unit) if unit else (text, "")


def _bare(text: str) -> str:
    text = re.sub(r"\\[,;:! ]|[\s$]", "", _MACRO.sub(r"\1", text))
    return text.strip("().,:;!").casefold()
