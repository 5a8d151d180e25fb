"""Words, sentences and paragraphs of a text, in any script."""

import re
import unicodedata

_WORD = re.compile(r"\w+")
_JOINED_WORD = re.compile(r"\w+(?:[-'’.]\w+)*")
_STOPS = re.compile(r"[.?!…。！？｡।؟]+")
_WORD_BEGIN = re.compile(r"[\s(\[\"'“‘]")
_CLOSING = "\"'”’)]}»」』）*_"
_FULL_WIDTH = "。！？｡।"
_ABBREVIATIONS = frozenset(
    {"mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "inc", "ltd", "co", "corp", "vs", "etc", "e.g", "i.e", "cf", "vol", "fig"}
)  # fmt: skip


def without_marks(text: str) -> str:
    """Without combining marks (Devanagari and Thai vowel signs, decomposed accents), at which \\w would end a word."""
    if text.isascii():
        return text
    return "".join(character for character in text if not unicodedata.category(character).startswith("M"))


def words(text: str) -> list[str]:
    """The runs of letters, digits and underscores.

    As IFEval counts: "don't" and "well-known" are two. Korean is counted by its spaces. A script without spaces (Chinese,
    Japanese, Thai) gives one word per run between punctuation, since nothing here can tell its words apart.
    """
    return _WORD.findall(without_marks(text))


def joined_words(text: str) -> list[str]:
    """The words, where hyphens, apostrophes and full stops inside one do not part it: WELL-KNOWN and U.S are one each."""
    return _JOINED_WORD.findall(without_marks(text))


def sentences(text: str) -> list[str]:
    """The sentences: pieces with a letter or digit in them, cut after each end of a sentence; a rest without one counts.

    A sentence ends at one or more of .?!… and their full-width and Indic forms, with the quotes and brackets that close
    there, before white space or the end of the text (after a full-width one also without space). It does not end at a
    line break, at the stop of an abbreviation ("Dr.", "e.g.", "etc." also at a real end), of an initial ("J. Smith") or of
    a number that begins a line ("1. First"), nor at dots that a lower-case letter follows ("well... maybe").

    Source: our own rule; IFEval asks NLTK's Punkt model, which needs data of its own and knows English alone.
    """
    found, begin = [], 0
    for match in _STOPS.finditer(text):
        end = match.end()
        while end < len(text) and text[end] in _CLOSING:
            end += 1
        if _is_end(text, match, begin, end):
            found.append(text[begin:end])
            begin = end
    return [each.strip() for each in [*found, text[begin:]] if any(map(str.isalnum, each))]


def _is_end(text: str, match: re.Match[str], begin: int, end: int) -> bool:
    stops = match.group()
    if stops[-1] not in _FULL_WIDTH and end < len(text) and not text[end].isspace():
        return False
    if stops == "…" or (len(stops) > 1 and set(stops) == {"."}):
        following = text[end : end + 2].strip()
        return not following[:1].islower()
    return stops != "." or not _is_inside(text, begin, match.start())


def _is_inside(text: str, begin: int, stop: int) -> bool:
    """Whether the full stop at ``stop`` belongs to the word before it. Looks back at most a few characters."""
    piece = text[max(begin, stop - 12) : stop]
    word = _WORD_BEGIN.split(piece)[-1]
    if word.isdigit():
        return len(word) <= 3 and _begins_line(text, stop - len(word))
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")


def _begins_line(text: str, position: int) -> bool:
    """Whether nothing but white space (at most 12 characters of it are looked at) stands before ``position`` on its line."""
    return not text[max(0, position - 12) : position].rpartition("\n")[2].strip()


def paragraphs(text: str) -> list[str]:
    """The runs of lines between blank lines, trimmed."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines).strip() for lines in found if lines]
