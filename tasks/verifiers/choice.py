"""The letter of a multiple-choice answer."""

import re
import unicodedata
from collections.abc import Sequence

from tasks.verifiers.answer_kinds import ChoiceVerifier
from tasks.verifiers.extraction import after_reasoning, last_boxed, last_tagged, plain
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored

LETTERS = "ABCDEFGHIJ"
MAX_ANSWER_CHARACTERS = 1000

_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s*\{([^{}]*)\}")
_LETTER = re.compile(rf"[(\[]?\s*([{LETTERS}])\s*[)\]]?\s*[.:]?")
_LETTER_AND_TEXT = re.compile(rf"(?:[(\[]\s*([{LETTERS}])\s*[)\]]|([{LETTERS}])\s*[).:])\s*[.:]?\s*(\S.*)", re.DOTALL)
_STATED = re.compile(
    rf"(?:\banswer\s*(?:is|:)|정답\s*(?:은|:)|답\s*(?:은|:))\s*:?\s*(?:option\s+)?\**\s*([(\[]?[{LETTERS}][)\]]?)(?![A-Za-z0-9_'’])",
    re.IGNORECASE,
)


def verify(config: ChoiceVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the answer names the gold option and no other, else 0.0.

    The gold answer is a letter A to J: B, (B), B. or \\text{(B)}. The answer stands in the tag, the box, or ("stated")
    behind the last "answer is", "Answer:", "정답은", "정답:"; a reply that is nothing but a letter counts as stated. It may be
    the letter, the letter with the option's text, or, where the prompt's metadata hold ``options`` (a list), the text
    of one option alone (NFKC, case and outer spaces aside). A letter inside a sentence is none ("A dog"), and several
    letters are no choice.

    Source: the multiple-choice tasks of MMLU, arXiv:2009.03300; read strictly, from a stated place only.
    """
    options = item.metadata.get("options")
    options = [str(option) for option in options] if isinstance(options, list) else []
    gold = read_letter(item.answer, options)
    if gold is None:
        return unscored(f"the gold answer {item.answer[:80]!r} names no option")
    text = after_reasoning(item.completion, config.reasoning_end)
    found = answer_text(config, text)
    if found is None:
        return scored(0.0, f"no answer was found ({config.where})")
    answer = read_letter(found, options) if len(found) <= MAX_ANSWER_CHARACTERS else None
    if answer is None:
        return scored(0.0, f"{found[:80]!r} names no option")
    return scored(1.0) if answer == gold else scored(0.0, f"{answer} is not {gold}")


def answer_text(config: ChoiceVerifier, text: str) -> str | None:
    """Where the settings say that the answer stands; None when nothing stands there."""
    if config.where == "tag":
        return last_tagged(text, config.answer_tag)
    if config.where == "box":
        return last_boxed(text)
    if _LETTER.fullmatch(plain(text)):
        return text
    stated = [
        match[1] for match in _STATED.finditer(unicodedata.normalize("NFKC", text)) if match[1].strip("()[]").isupper()
    ]
    return stated[-1] if stated else None


def read_letter(text: str, options: Sequence[str]) -> str | None:
    """The option that a short text names: "B", "(B)", "B. Paris", or the text of one of ``options``; None for none."""
    text = plain(text)
    while (unwrapped := _WRAPPER.sub(r"\1", text)) != text:
        text = plain(unwrapped)
    text = text.strip("$* ")
    if match := _LETTER.fullmatch(text):
        return match[1]
    same = [LETTERS[index] for index, option in enumerate(options[: len(LETTERS)]) if _folded(option) == _folded(text)]
    if len(same) == 1:
        return same[0]
    match = _LETTER_AND_TEXT.fullmatch(text)
    if match is None:
        return None
    letter, rest = match[1] or match[2], match[3]
    if not options:
        # Without the options' texts a second letter in the rest may be a second choice.
        return None if re.search(rf"(?<!\w)[(\[]?[{LETTERS}][)\].:](?!\w)", rest) else letter
    index = LETTERS.index(letter)
    return letter if index < len(options) and _folded(options[index]) == _folded(rest) else None


def _folded(text: str) -> str:
    return " ".join(plain(text).casefold().rstrip(".").split())
