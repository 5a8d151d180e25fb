"""The shown steps of chain arithmetic, each right or wrong."""

import re
from collections.abc import Iterator
from itertools import pairwise

from tasks.values.arithmetic import terms_of
from tasks.verifiers.extraction import last_tagged, plain
from tasks.verifiers.steps import cut
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored

EQUATION = re.compile(r"(?<![\w.+*/^=-])(-?[0-9]{1,18})\s*([+-])\s*([0-9]{1,18})\s*=\s*(-?[0-9]{1,18})(?!\w)", re.ASCII)
_MARKUP = re.compile(r"</?\w+>")
_DIGIT = re.compile(r"[0-9]")


def verify(config: ArithmeticStepsVerifier, item: ScoreItem) -> Verdict:
    """Rewards every step, 1.0 or 0.0; the reward is their mean.

    For "5+8-1-5=" the steps of "<think>5+8=13,13-1=12,12-5=7</think><answer>7</answer>" are all right. A step of the
    working is right when it is one equation (words around it are allowed, more numbers are not) that is true and goes on:
    its left operand is the last result that the completion itself showed (at first the problem's first term), what it
    adds is the problem's next term. So a slip is one wrong step, and the honest steps after it are right. Each equation
    uses one term up, right or wrong; one more than there are terms is wrong, and so is a step without an equation. A
    step that reaches into the last <answer>...</answer> is right when the answer equals the gold one (trimmed, NFKC). A
    step that is missing can not be wrong itself: a right answer without working is one right step.

    Source: correct and incorrect steps as in Let's Verify Step by Step, arXiv:2305.20050, decided by rule instead of by
    people or by roll-outs (Math-Shepherd, arXiv:2312.08935).
    """
    try:
        terms = terms_of(item.prompt)
    except ValueError:
        return unscored("the prompt is not a chain of single digits")
    gold = plain(item.answer)
    if not gold:
        return unscored("the gold answer is empty")
    ends = cut(item.completion, config.split)
    if not ends:  # one wrong step, else nothing would speak against saying nothing
        return scored(0.0, "the completion is empty", ((0, 0.0),))
    are_right = list(_judge(item.completion, ends, terms, gold, config.answer_tag))
    steps = tuple((end, float(is_right)) for end, is_right in zip(ends, are_right, strict=True))
    if all(are_right):
        return scored(1.0, steps=steps)
    first = are_right.index(False)
    wrong = item.completion[([0, *ends])[first] : ends[first]]
    reason = f"step {first + 1} of {len(ends)} is wrong: {wrong[:80]!r}"
    return scored(sum(are_right) / len(are_right), reason, steps)


def _judge(text: str, ends: list[int], terms: list[int], gold: str, answer_tag: str) -> Iterator[bool]:
    """Whether each step is right, in order."""
    answer = last_tagged(text, answer_tag)
    is_answer_right = answer is not None and plain(answer) == gold
    answer_begin = text.rfind(f"<{answer_tag}>")
    closing = f"</{answer_tag}>"
    answer_end = len(text) if answer is None else text.find(closing, answer_begin) + len(closing)
    result, *upcoming = terms
    for begin, end in pairwise([0, *ends]):
        if answer_begin >= 0 and begin < answer_end and answer_begin < end:
            yield is_answer_right
            continue
        equation = read_equation(text[begin:end])
        if equation is None:
            yield False
            continue
        left, added, shown = equation
        goes_on = bool(upcoming) and left == result and added == upcoming[0]
        yield goes_on and left + added == shown
        result, upcoming = shown, upcoming[1:]


def read_equation(text: str) -> tuple[int, int, int] | None:
    """(13, -1, 12) for "13-1=12"; None unless the text holds exactly one such equation and no other number.

    Markup and words around it do not matter. Numbers have at most 18 digits.
    """
    text = _MARKUP.sub("", plain(text))
    match = EQUATION.search(text)
    if match is None or _DIGIT.search(text[: match.start()] + text[match.end() :]):
        return None
    left, sign, right, result = match.groups()
    return int(left), int(sign + right), int(result)
