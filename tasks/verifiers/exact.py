"""Equality of text."""

from tasks.verifiers.answer_kinds import ExactVerifier
from tasks.verifiers.extraction import last_tagged, plain
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored


def verify(config: ExactVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the answer in the tag equals the gold answer (trimmed, NFKC), else 0.0.

    Source: the outcome reward of DeepSeek-R1, arXiv:2501.12948, section 2.2.2 (answers in a specified format).
    """
    gold = plain(item.answer)
    if not gold:
        return unscored("the gold answer is empty")
    answer = last_tagged(item.completion, config.answer_tag) if config.answer_tag else item.completion
    if answer is None:
        return scored(0.0, f"no closed <{config.answer_tag}>")
    return scored(1.0) if plain(answer) == gold else scored(0.0, f"{plain(answer)[:80]!r} is not {gold[:80]!r}")
