"""Scores of reasoning-gym tasks."""

import json
import re
from functools import cache
from typing import Any

from tasks.verifiers.answer_kinds import ReasoningGymVerifier
from tasks.verifiers.extraction import last_tagged
from tasks.verifiers.verdict import ScoreItem, Verdict, failed, scored, unscored

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:/\d+)?")


@cache
def _task(name: str) -> Any:
    import reasoning_gym  # imported here, in the child: it costs seconds

    return reasoning_gym.get_score_answer_fn(name)


def verify(config: ReasoningGymVerifier, item: ScoreItem) -> Verdict:
    """The task's own score in [0, 1] of the extracted answer.

    The answer is the text of the tag; without a tag in the settings it is the last number of the completion when the gold
    answer is a number, else the trimmed completion. A task that scores its own gold answer below 1 can not be trusted on
    this row, and one that raises or gives something else than a number has failed.

    Source: reasoning-gym 0.1.25, ``get_score_answer_fn``.
    """
    entry = item.metadata.get("entry")
    if not isinstance(entry, dict) or not isinstance(item.metadata.get("task"), str):
        return unscored("the prompt does not come from reasoning_gym: its metadata hold no task and entry")
    score_answer = _task(item.metadata["task"])
    if score_answer(answer=item.answer, entry=entry) < 1:
        return unscored("the task does not accept its own gold answer")
    if item.is_truncated and not config.answer_tag:
        # Where the last thing said is the answer, a text that was cut has none: its last number is a coincidence.
        return scored(0.0, "cut before its end, so its last words are no answer")
    answer = extract(config, item)
    if not answer:
        return scored(0.0, "no answer was found")
    try:
        score = score_answer(answer=answer, entry=entry)
    except Exception as error:  # noqa: BLE001  # tasks raise whatever their parsing of model text raises
        # Every gold answer parsed above, so this is the model's text, not the task: a wrong answer.
        return scored(0.0, f"{answer[:80]!r} can not be read: {type(error).__name__}")
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 1:
        return failed(f"task {item.metadata['task']} gave {json.dumps(score, default=str)}, not a score in [0, 1]")
    return scored(float(score), "" if score >= 1 else f"{answer[:80]!r}")


def extract(config: ReasoningGymVerifier, item: ScoreItem) -> str:
    """The answer text that the task scores, "" when there is none."""
    if config.answer_tag:
        return (last_tagged(item.completion, config.answer_tag) or "").strip()
    if NUMBER.fullmatch(item.answer.strip()):
        numbers = NUMBER.findall(item.completion.replace(",", ""))
        return numbers[-1] if numbers else ""
    return item.completion.strip()
