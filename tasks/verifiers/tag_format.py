"""The shape of a completion."""

import re

from tasks.verifiers.text_kinds import FormatVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict, scored


def verify(config: FormatVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the tags stand exactly once each, in order, filled, with nothing but white space around, else 0.0.

    Counting the tags keeps a second block from hiding inside the first.
    Source: the format reward of DeepSeek-R1, arXiv:2501.12948, section 2.2.2, made strict.
    """
    text = item.completion
    for tag in config.tags:
        for mark in (f"<{tag}>", f"</{tag}>"):
            if text.count(mark) != 1:
                return scored(0.0, f"{mark} stands {text.count(mark)} times")
    blocks = r"\s*".join(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>" for tag in config.tags)
    match = re.fullmatch(rf"{blocks}\s*", text, re.DOTALL)
    if match is None:
        return scored(0.0, "text stands around the tags, or they are out of order")
    if any(not block.strip() for block in match.groups()):
        return scored(0.0, "a tag is empty")
    return scored(1.0)
