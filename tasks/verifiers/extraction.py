"""Find the answer in a completion."""

import unicodedata


def last_tagged(text: str, tag: str) -> str | None:
    """What stands in the last <tag>...</tag>; None without one, or when the last <tag> is never closed."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    begin = text.rfind(opening)
    if begin < 0:
        return None
    end = text.find(closing, begin)
    return text[begin + len(opening) : end] if end >= 0 else None


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{...}, braces balanced; None without one, or when the last is never closed.

    Nested braces are counted (an escaped brace is not one), which a regular expression can not do.
    """
    begin = text.rfind("\\boxed{")
    if begin < 0:
        return None
    start = begin + len("\\boxed{")
    depth = 1
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[start:position]
        position += 1
    return None


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


def plain(text: str) -> str:
    """NFKC without outer white space: full-width digits and letters become ordinary ones."""
    return unicodedata.normalize("NFKC", text).strip()
