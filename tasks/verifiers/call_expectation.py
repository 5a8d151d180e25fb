"""What a gold answer expects of tool calls."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.verifiers.call_reading import Call
from tasks.verifiers.strict_json import NotJson, read_json

OMITTED = ""
"""BFCL's mark among the acceptable values of an argument: it may be left out."""

SameText = Callable[[str, str], bool]


@dataclass(frozen=True)
class Expectation:
    """One expected call. ``exact``: the arguments are values; else each is a list of acceptable ones."""

    name: str
    arguments: dict[str, Any]
    exact: bool

    def is_met_by(self, call: Call, same_text: SameText) -> bool:
        """Whether name and arguments are as expected."""
        if call.name != self.name:
            return False
        if self.exact:
            return is_same(self.arguments, call.arguments, same_text)
        return has_acceptable(self.arguments, call.arguments, same_text)


class UnreadableGold(ValueError):
    """The gold answer gives no expected calls; the message says why."""


def read_gold(text: str) -> tuple[list[Expectation], bool | None]:
    """The expected calls, and whether their order matters (None: as in the settings).

    Raises:
        UnreadableGold: neither ``{"calls": [...]}`` nor ``{"acceptable": [...]}``, or an argument that no value would be
            right for.
    """
    try:
        gold = read_json(text)
    except NotJson as error:
        raise UnreadableGold(f"the gold answer is not JSON: {error}") from None
    if not isinstance(gold, dict) or len(gold.keys() & {"calls", "acceptable"}) != 1:
        raise UnreadableGold("the gold answer is no object with calls or acceptable")
    if unknown := sorted(gold.keys() - {"calls", "acceptable", "ordered"}):
        raise UnreadableGold(f"the gold answer has the key {unknown[0]!r}")
    ordered = gold.get("ordered")
    if "ordered" in gold and not isinstance(ordered, bool):
        raise UnreadableGold("ordered in the gold answer is neither true nor false")
    (kind,) = gold.keys() & {"calls", "acceptable"}
    if not isinstance(gold[kind], list):
        raise UnreadableGold(f"{kind} in the gold answer is not a list")
    return [_exact(item) if kind == "calls" else _acceptable(item) for item in gold[kind]], ordered


def _exact(item: Any) -> Expectation:
    if not isinstance(item, dict) or set(item) != {"name", "arguments"}:
        raise UnreadableGold("an expected call does not have just a name and arguments")
    if not isinstance(item["name"], str) or not isinstance(item["arguments"], dict):
        raise UnreadableGold("the name of an expected call is not text, or its arguments are not an object")
    return Expectation(item["name"], item["arguments"], exact=True)


def _acceptable(item: Any) -> Expectation:
    if not isinstance(item, dict) or len(item) != 1:
        raise UnreadableGold("an acceptable call is not an object with one name")
    ((name, arguments),) = item.items()
    _check_options(name, arguments)
    return Expectation(name, arguments, exact=False)


def _check_options(place: str, options_by_key: Any) -> None:
    if not isinstance(options_by_key, dict):
        raise UnreadableGold(f"what is acceptable for {place!r} is not an object")
    for key, options in options_by_key.items():
        if not isinstance(options, list) or not options:
            raise UnreadableGold(f"{key!r} of {place!r} has no acceptable value")
        for nested in _objects(options):
            _check_options(f"{place}.{key}", nested)


def _objects(options: list[Any]) -> list[dict[str, Any]]:
    """The objects among the options, also those in lists: their values are lists of acceptable ones again."""
    found = []
    for option in options:
        if isinstance(option, dict):
            found.append(option)
        elif isinstance(option, list):
            found.extend(_objects(option))
    return found


def is_same(gold: Any, given: Any, same_text: SameText) -> bool:
    """Whether two JSON values are equal, types included.

    true is not 1, 1 is not "1". An integer is right where the gold value is a float of the same size (1 for 1.0), a
    float where it is an integer is not (1.0 for 1), as BFCL does for Python. Lists in order, objects by key.
    """
    if isinstance(gold, dict):
        return (
            isinstance(given, dict)
            and gold.keys() == given.keys()
            and all(is_same(value, given[key], same_text) for key, value in gold.items())
        )
    if isinstance(gold, list):
        return (
            isinstance(given, list)
            and len(gold) == len(given)
            and all(is_same(value, other, same_text) for value, other in zip(gold, given, strict=True))
        )
    return _is_same_scalar(gold, given, same_text)


def _is_same_scalar(gold: Any, given: Any, same_text: SameText) -> bool:
    if isinstance(gold, str):
        return isinstance(given, str) and same_text(gold, given)
    if type(gold) is float:
        return type(given) in (int, float) and gold == given
    return type(gold) is type(given) and bool(gold == given)


def has_acceptable(options_by_key: dict[str, list[Any]], given: dict[str, Any], same_text: SameText) -> bool:
    """Whether each key has one of its acceptable values or is left out where it may be, and no other key is there."""
    if given.keys() - options_by_key.keys():
        return False
    return all(
        is_acceptable(options, given[key], same_text) if key in given else OMITTED in options
        for key, options in options_by_key.items()
    )


def is_acceptable(options: list[Any], given: Any, same_text: SameText) -> bool:
    """Whether a value is one of the options.

    The mark "" is itself a value only where text can stand: beside another text, or alone.
    """
    values = [option for option in options if option != OMITTED]
    if given == OMITTED and OMITTED in options and (not values or any(isinstance(value, str) for value in values)):
        return True
    return any(_fits(option, given, same_text) for option in values)


def _fits(option: Any, given: Any, same_text: SameText) -> bool:
    if isinstance(option, dict):
        return isinstance(given, dict) and has_acceptable(option, given, same_text)
    if isinstance(option, list):
        return (
            isinstance(given, list)
            and len(option) == len(given)
            and all(_fits(value, other, same_text) for value, other in zip(option, given, strict=True))
        )
    return _is_same_scalar(option, given, same_text)


_UNSEEN = re.compile(r"[ ,./\-_*^]")


def same_exactly(gold: str, given: str) -> bool:
    return gold == given


def same_relaxed(gold: str, given: str) -> bool:
    """BFCL's comparison: without case, spaces and ,./-_*^ and with ' as "."""
    return _relaxed(gold) == _relaxed(given)


def _relaxed(text: str) -> str:
    return _UNSEEN.sub("", text).lower().replace("'", '"')
