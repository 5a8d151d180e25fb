"""Read step labels from files: solutions with their steps, and what is known of each step."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.reward.step_kinds import MathShepherdFile, Prm800kFile, ProcessBenchFile, StepFileConfig

ANSWER_OF_PRM800K = "# Answer"
"""Stands in the step that ends a solution of PRM800K."""


@dataclass(frozen=True)
class StepSolution:
    """A prompt, the steps of a solution and a label for each, None where nothing is known.

    ``is_finished``: nothing follows the last step. ``line``: its line of the file, from 1.
    """

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    is_finished: bool
    line: int


class _Unreadable(ValueError):
    """A line that is not of its file's kind; says what is wrong, the caller says where."""


def read_step_file(config: StepFileConfig) -> list[StepSolution]:
    """Every solution of the file that has a labelled step, in order.

    Raises:
        ValueError: there is no such file, it holds no labels, or a line can not be read; names file, line and cure.
    """
    path = Path(config.path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file; set reward_model.labels.initial.path to a file of JSON lines")
    solutions: list[StepSolution] = []
    for number, text in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            found = list(READERS[type(config)](config, _object(text), number))
        except _Unreadable as error:
            raise ValueError(
                f"line {number} of {path}: {error}; mend or remove the line, or set reward_model.labels.initial.kind"
            ) from error
        solutions += [each for each in found if any(label is not None for label in each.labels)]
    if not solutions:
        raise ValueError(f"{path} holds no labelled step; leave reward_model.labels.initial out")
    return solutions


def prm800k(config: Prm800kFile, record: dict[str, Any], line: int) -> Iterator[StepSolution]:
    """The chosen path, with the rating of each of its steps, and one solution per alternative that was not chosen.

    An alternative is the path up to it and itself; only itself is labelled, as the path labels the rest. Where nothing
    was chosen the step that people wrote goes on (it has no rating), else the path ends, and all are alternatives. A
    rating of null, as flagged steps have, is no label. Problems that their labeller called broken are left out.

    Source: the format of PRM800K, Let's Verify Step by Step, arXiv:2305.20050.
    """
    prompt = _text(_member(record, "question", dict), "problem")
    label = _member(record, "label", dict)
    if label.get("finish_reason") == "bad_problem":
        return
    path: list[str] = []
    ratings: list[float | None] = []
    for step in _member(label, "steps", list):
        rated = [
            (_text(each, "text"), _rating(each, config))
            for each in (_member(step, "completions", list) if _of(step, dict).get("completions") is not None else [])
        ]
        chosen = step.get("chosen_completion")
        if chosen is not None and not (type(chosen) is int and 0 <= chosen < len(rated)):
            raise _Unreadable(f"chosen_completion is {chosen!r}, and there are {len(rated)} completions")
        for index, (text, rating) in enumerate(rated):
            if index != chosen:
                yield _solution(prompt, [*path, text], [*[None for _ in path], rating], line)
        if chosen is not None:
            path.append(rated[chosen][0])
            ratings.append(rated[chosen][1])
        elif step.get("human_completion") is not None:
            path.append(_text(_member(step, "human_completion", dict), "text"))
            ratings.append(None)
        else:
            break
    yield _solution(prompt, path, ratings, line)


def _solution(prompt: str, steps: list[str], labels: list[float | None], line: int) -> StepSolution:
    is_finished = bool(steps) and ANSWER_OF_PRM800K in steps[-1]
    return StepSolution(prompt, tuple(steps), tuple(labels), is_finished, line)


def _rating(completion: dict[str, Any], config: Prm800kFile) -> float | None:
    rating = completion.get("rating")
    if rating is None:
        return None
    if isinstance(rating, bool) or rating not in (-1, 0, 1):
        raise _Unreadable(f"rating {rating!r} is none of -1, 0 and 1")
    if rating == 0:
        return {"right": 1.0, "wrong": 0.0, "left_out": None}[config.neutral]
    return float(rating == 1)


def math_shepherd(config: MathShepherdFile, record: dict[str, Any], line: int) -> Iterator[StepSolution]:
    """A solution whose every step has a label, + or -.

    ``input`` and ``label`` are the same text but for the marks. What stands before ``first_step`` is the question; white
    space around a step goes.

    Source: the published data of Math-Shepherd, arXiv:2312.08935.
    """
    text, labelled = _text(record, "input"), _text(record, "label")
    *pieces, rest = text.split(config.mark)
    if not pieces:
        raise _Unreadable(f"input has no mark {config.mark!r} after any step (the file's mark is a setting)")
    if rest.strip():
        raise _Unreadable(f"input goes on behind its last mark {config.mark!r}")
    labels: list[float] = []
    position = 0
    for piece in pieces:
        sign = labelled[position + len(piece) : position + len(piece) + 1]
        if labelled[position : position + len(piece)] != piece or sign not in ("+", "-"):
            raise _Unreadable(f"label does not have + or - where input has mark {len(labels) + 1}")
        labels.append(float(sign == "+"))
        position += len(piece) + 1
    begin = pieces[0].rfind(config.first_step)
    if begin <= 0 or not pieces[0][:begin].strip():
        raise _Unreadable(f"input has no question before {config.first_step!r} (what begins a solution is a setting)")
    steps = [pieces[0][begin:], *pieces[1:]]
    yield StepSolution(
        pieces[0][:begin].strip(), tuple(_filled(step.strip()) for step in steps), tuple(labels), True, line
    )


def process_bench(config: ProcessBenchFile, record: dict[str, Any], line: int) -> Iterator[StepSolution]:
    """A solution whose first wrong step is known: the steps before it are right, those behind it have no label.

    Source: the format of ProcessBench, arXiv:2412.06559.
    """
    steps = tuple(_filled(step) for step in _member(record, "steps", list))
    first = record.get("label")
    if type(first) is not int or not -1 <= first < len(steps):
        raise _Unreadable(f"label {first!r} is neither -1 nor one of the {len(steps)} steps")
    known = len(steps) if first == -1 else first
    labels = (*(1.0,) * known, *(0.0,) * (first >= 0), *(None,) * (len(steps) - known - 1))
    yield StepSolution(_text(record, "problem"), steps, labels, True, line)


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested without end
        raise _Unreadable(f"not JSON ({error})") from error
    return _of(found, dict)  # type: ignore[no-any-return]


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Unreadable(f"{str(value)[:40]!r} is {type(value).__name__}, not {kind.__name__}")
    return value


def _member(record: Any, key: str, kind: type) -> Any:
    if key not in _of(record, dict):
        raise _Unreadable(f"there is no {key!r} (there are {', '.join(sorted(record)[:8]) or 'no keys'})")
    if not isinstance(record[key], kind):
        raise _Unreadable(f"{key!r} is {type(record[key]).__name__}, not {kind.__name__}")
    return record[key]


def _text(record: Any, key: str) -> str:
    return _filled(_member(record, key, str))


def _filled(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise _Unreadable(f"{str(text)[:40]!r} stands where a text should be")
    return text


READERS: dict[type, Callable[[Any, dict[str, Any], int], Iterator[StepSolution]]] = {
    Prm800kFile: prm800k,
    MathShepherdFile: math_shepherd,
    ProcessBenchFile: process_bench,
}
