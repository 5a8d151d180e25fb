"""A pattern that the completion must match."""

import re
from functools import lru_cache

from tasks.verifiers.answer_kinds import RegexVerifier
from tasks.verifiers.extraction import after_reasoning, last_tagged
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored

MAX_TEXT_CHARACTERS = 100_000


def verify(config: RegexVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the pattern matches, else 0.0.

    The pattern is the one of the settings or, where that is empty, the gold answer. A pattern may need time that grows
    exponentially with the text ((a+)+b): Python's engine can not be stopped, so the row's deadline ends its process and
    the row's status is ``timeout``. Longer texts than 100,000 characters do not match.

    Source: Python's ``re``; dot does not match a line end unless the pattern says (?s).
    """
    pattern = config.pattern or item.answer
    if not pattern:
        return unscored("neither the settings nor the gold answer give a pattern")
    try:
        compiled = _compiled(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return unscored(f"the gold answer {pattern[:80]!r} is no pattern: {error}")
    text = after_reasoning(item.completion, config.reasoning_end)
    found = last_tagged(text, config.answer_tag) if config.answer_tag else text
    if found is None:
        return scored(0.0, f"no closed <{config.answer_tag}>")
    if len(found) > MAX_TEXT_CHARACTERS:
        return scored(0.0, f"{len(found)} characters are too many to match")
    matches = compiled.fullmatch(found.strip()) if config.match == "full" else compiled.search(found)
    return scored(1.0) if matches else scored(0.0, f"{found[:80]!r} does not match {pattern[:80]!r}")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
