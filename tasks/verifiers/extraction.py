"""Find the answer in a completion."""

import re
import unicodedata

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|(?<=\s)(?P<bare>-?\d[\d,./]*))")
"""A box with braces, or around one bare number (\\boxed 5)."""

_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b]+")
_LOWERED = re.compile("[\u2080-\u2089]+")
_FRACTION = re.compile("[\u00bc-\u00be\u2150-\u215e]")


def last_tagged(text: str, tag: str) -> str | None:
    """What stands in the last <tag>...</tag>; None without one, or when the last <tag> is never closed."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    begin = text.rfind(opening)
    if begin < 0:
        return None
    end = text.find(closing, begin)
    return text[begin + len(opening) : end] if end >= 0 else None


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{...} or \fbox{...}, braces balanced; None without one, or when it is never closed.

    Nested braces are counted (an escaped brace is not one), which a regular expression can not do. Of boxes within boxes
    the innermost is the last one to begin. A number without braces (\boxed 5) counts; the bare word \boxed is no box.
    """
    last = None
    for last in _BOX.finditer(text):  # noqa: B007  # only the last one is looked at
        pass
    if last is None:
        return None
    if last["bare"] is not None:
        return last["bare"].rstrip(",./")
    end = closing_brace(text, last.end())
    return None if end is None else text[last.end() : end]


def closing_brace(text: str, start: int) -> int | None:
    """Where the brace closes that was opened just before ``start``, None when it never does."""
    depth = 1
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return position
        position += 1
    return None


def unboxed(text: str) -> str:
    """Without the box that stands around the whole text."""
    text = text.strip()
    match = _BOX.match(text)
    if match is None or match["bare"] is not None or closing_brace(text, match.end()) != len(text) - 1:
        return text
    return text[match.end() : -1].strip()


def after_reasoning(text: str, reasoning_end: str) -> str:
    """The part after the last ``reasoning_end``; the whole text without one.

    A text that opens a <think> block but never closes it holds no answer yet.
    """
    if not reasoning_end:
        return text
    opening = reasoning_end.replace("</", "<", 1)
    _, found, tail = text.rpartition(reasoning_end)
    if not found:
        return "" if opening != reasoning_end and opening in text else text
    return "" if opening != reasoning_end and opening in tail else tail


def unwrapped(text: str) -> str:
    """Without a box around it, math delimiters, a final full stop, and outer white space; NFKC."""
    text = unboxed(text)
    for opening, closing in (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$")):
        is_around = text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing)
        if is_around and opening not in text[len(opening) : -len(closing)]:
            text = text[len(opening) : -len(closing)].strip()
    text = plain(text)
    return text if text.endswith("...") else text.rstrip(".").strip()


def gold_text(answer: str) -> str:
    """A gold answer as its dataset gives it: unwrapped, and of a GSM8K solution ("... #### 42") only the end."""
    return unwrapped(answer.rpartition("####")[2])


def plain(text: str) -> str:
    """NFKC without outer white space: full-width digits and letters become ordinary ones.

    Raised and lowered digits and one-character fractions are spelt out first (5² is 5^{2}, 1½ is 1 1/2): NFKC alone would
    make them 52 and 11/2.
    """
    text = _RAISED.sub(lambda match: f"^{{{unicodedata.normalize('NFKC', match[0])}}}", text)
    text = _LOWERED.sub(lambda match: f"_{{{unicodedata.normalize('NFKC', match[0])}}}", text)
    text = _FRACTION.sub(lambda match: f" {unicodedata.normalize('NFKC', match[0])}", text)
    return unicodedata.normalize("NFKC", text).replace("\u2044", "/").strip()
