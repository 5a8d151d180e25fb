"""Rewards of a Python function that somebody brings."""

import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import numbers
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tasks.verifiers.call_kinds import FunctionVerifier
from tasks.verifiers.verdict import CannotStart, ScoreItem, Verdict, failed, scored, unscored

RESERVED = {"prompts", "completions", "prompt", "completion", "completion_ids"}
"""Columns of these names are not handed on, like in TRL: the call has its own."""
MAX_METRICS = 16
MAX_EXTRA_CHARACTERS = 200


def verify(config: FunctionVerifier, item: ScoreItem) -> Verdict:
    """What the function gives for one completion, called with lists of length one.

    Source: TRL 1.16.0, GRPOTrainer._calculate_rewards, for the arguments; the checks of what comes back are ours.
    """
    return verify_group(config, [item])[0]


def verify_group(config: FunctionVerifier, items: Sequence[ScoreItem]) -> list[Verdict]:
    """What the function gives for all completions of a prompt, in one call.

    The arguments, by name: ``prompts`` and ``completions`` (text, or lists of messages for a chat), ``completion_ids``, the
    gold answers, the prompt's other columns, ``trainer_state`` (None: a reward that changes with the progress of training
    could not be found again), ``log_extra`` (goes to the rows' reasons), ``log_metric`` (counted: ``{name}_sum`` and
    ``num_{name}``). A function without ``**kwargs`` is given those that it names; an async function is awaited.

    None leaves a row unscored; True and False are 1 and 0; a number that is not finite or no number is that row's error;
    anything but one value per completion is the error of every row.
    """
    function = load(config.function)
    log = _Log(len(items))
    outcome = function(**_accepted(function, _arguments(config, items) | log.arguments()))
    if inspect.isawaitable(outcome):
        outcome = _runner().run(_awaited(outcome))
    if isinstance(outcome, (str, bytes, Mapping)) or not hasattr(outcome, "__iter__"):
        return [failed(f"{config.function} returned a {type(outcome).__name__}, not a list of rewards")] * len(items)
    values = list(outcome)
    if len(values) != len(items):
        return [failed(f"{config.function} returned {len(values)} rewards for {len(items)} completions")] * len(items)
    verdicts = [_verdict(config.function, value, log.reason(row)) for row, value in enumerate(values)]
    return [replace(verdicts[0], counts=log.counts()), *verdicts[1:]]


def prepare(config: FunctionVerifier) -> None:
    """Import the function.

    Raises:
        CannotStart: it is not there, is not callable, or its module does not import; says where it was looked for.
    """
    try:
        load(config.function)
    except CannotStart:
        raise
    except (Exception, SystemExit) as error:
        place = config.function.rpartition(":")[0]
        raise CannotStart(
            f"{config.function}: importing {place} gave {type(error).__name__}: {error}. Start igrpo in the folder that "
            f"holds it, install what it imports, or give the path of the file (path/to/rewards.py:function)"
        ) from error


@cache
def load(function: str) -> Callable[..., Any]:
    """The function of a name "package.module:function" or "path/to/file.py:function"."""
    place, _, path = function.rpartition(":")
    found: Any = _module_of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    for name in path.split("."):
        if not hasattr(found, name):
            raise CannotStart(f"{function}: {place} has no {name!r}; correct the name after the colon")
        found = getattr(found, name)
    if not callable(found):
        raise CannotStart(f"{function} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _module_of_file(path: Path) -> Any:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise CannotStart(f"there is no file {path}; relative paths begin at the folder that igrpo is started in")
    name = f"function_of_{path.stem}"  # no module of ours or of a library is called that
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look modules up by name
    sys.path.append(str(path.parent))  # for the files beside it
    spec.loader.exec_module(module)
    return module


def _arguments(config: FunctionVerifier, items: Sequence[ScoreItem]) -> dict[str, Any]:
    columns = dict.fromkeys(key for item in items for key in item.metadata if key not in RESERVED)
    return {
        **{key: [item.metadata.get(key) for item in items] for key in columns},
        config.answer_column: [item.answer for item in items],
        "prompts": [json.loads(item.prompt) if item.is_chat else item.prompt for item in items],
        "completions": [
            [{"role": "assistant", "content": item.completion}] if item.is_chat else item.completion for item in items
        ],
        "completion_ids": [list(item.completion_token_ids) for item in items],
        "trainer_state": None,
    }


def _accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin that does not say
        return arguments
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


@cache
def _runner() -> asyncio.Runner:
    """One event loop for all calls: what an async function keeps open between them belongs to its loop."""
    return asyncio.Runner()


async def _awaited(outcome: Any) -> Any:
    return await outcome


def _verdict(function: str, value: Any, reason: str) -> Verdict:
    if value is None:
        return unscored(reason or f"{function} gave None")
    if not isinstance(value, numbers.Real) and hasattr(value, "item"):  # of numpy or torch, with one value in it
        value = value.item()
    if not isinstance(value, numbers.Real):
        return failed(f"{function} gave {value!r:.80}, a {type(value).__name__}, not a number")
    reward = float(value)
    if not math.isfinite(reward):
        return failed(f"{function} gave {reward}")
    return scored(reward, reason)


class _Log:
    """What a function says through ``log_extra`` and ``log_metric``."""

    def __init__(self, num_rows: int) -> None:
        self._extra: list[dict[str, str]] = [{} for _ in range(num_rows)]
        self._metrics: dict[str, list[float]] = {}

    def arguments(self) -> dict[str, Any]:
        return {"log_extra": self._log_extra, "log_metric": self._log_metric}

    def reason(self, row: int) -> str:
        return ", ".join(f"{column}={value}" for column, value in self._extra[row].items())[:MAX_EXTRA_CHARACTERS]

    def counts(self) -> tuple[tuple[str, float], ...]:
        summed = [(f"{name}_sum", math.fsum(values)) for name, values in self._metrics.items()]
        return (*summed, *((f"num_{name}", float(len(values))) for name, values in self._metrics.items()))

    def _log_extra(self, column: str, values: Sequence[Any]) -> None:
        for extra, value in zip(self._extra, values, strict=True):
            extra[str(column)] = str(value)[:MAX_EXTRA_CHARACTERS]

    def _log_metric(self, name: str, value: Any) -> None:
        clean = re.sub(r"[^A-Za-z0-9_]", "_", str(name))[:64]
        if not math.isfinite(number := float(value)):
            raise ValueError(f"log_metric {name!r} was given {number}")
        if clean in self._metrics or len(self._metrics) < MAX_METRICS:
            self._metrics.setdefault(clean, []).append(number)
        else:
            raise ValueError(f"log_metric: more than {MAX_METRICS} names")
