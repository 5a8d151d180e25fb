"""The gold answer of a programming task: what a program must do to be right."""

import ast
import json
import warnings
from dataclasses import dataclass
from typing import Any


class UnreadableSuite(ValueError):
    """A gold answer that decides nothing; the message says why."""


@dataclass(frozen=True)
class Case:
    """What a program reads and what it must print."""

    stdin: str
    stdout: str


@dataclass(frozen=True)
class Suite:
    """Tests of functions, or cases of whole programs; never both.

    ``prefix``: code that the prompt begins the program with. ``setup``: code that runs before the tests. ``entry_points``:
    the names that the program must define; empty: found in the tests.
    """

    tests: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()
    setup: str = ""
    prefix: str = ""
    entry_points: tuple[str, ...] = ()

    @property
    def prefix_code(self) -> str:
        """The prefix as code of its own: a function's head without a body gets an empty one."""
        return self.prefix if is_python(self.prefix) else f"{self.prefix}\n    pass\n"

    @property
    def num_tests(self) -> int:
        return len(self.tests) or len(self.cases)


KEYS = {"tests", "check", "cases", "setup", "prefix", "entry_point"}


def read_suite(answer: str) -> Suite:
    """The suite of a gold answer, a JSON object in one of three shapes.

    - ``{"tests": ["assert f(1) == 2", ...]}``, with ``setup`` where the tests need code before them (MBPP: ``test_list`` and
      ``test_setup_code``) and ``entry_point`` where the program's names can not be told from the tests;
    - ``{"check": "def check(candidate): ...", "entry_point": "f"}``, with ``prefix`` (HumanEval: ``test``, and ``prompt`` as
      the prefix);
    - ``{"cases": [{"stdin": "1\\n", "stdout": "2\\n"}, ...]}``.

    Raises:
        UnreadableSuite: it is none of these, or every program would pass.
    """
    try:
        gold = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise UnreadableSuite(f"the gold answer is no JSON: {str(error)[:100]}") from error
    if not isinstance(gold, dict):
        raise UnreadableSuite(f"the gold answer is a {type(gold).__name__}, not an object")
    if unknown := sorted(set(gold) - KEYS):
        raise UnreadableSuite(f"the gold answer has unknown keys {unknown[:5]}; there are {sorted(KEYS)}")
    if len([key for key in ("tests", "check", "cases") if key in gold]) != 1:
        raise UnreadableSuite("the gold answer needs one of tests, check and cases")
    if "cases" in gold:
        return Suite(cases=_cases(gold["cases"]))
    setup, prefix, entry_points = _text(gold, "setup"), _text(gold, "prefix"), _entry_points(gold)
    tests = _tests(gold, entry_points)
    suite = Suite(tests=tests, setup=setup, prefix=prefix, entry_points=entry_points)
    for source in (setup, suite.prefix_code, *tests):
        if not is_python(source):
            raise UnreadableSuite(f"the gold answer holds what is no Python: {source[:80]!r}")
    return suite


def is_python(source: str) -> bool:
    """Whether the text parses. Never raises, and warns of nothing."""
    return parsed(source) is not None


def parsed(source: str) -> ast.Module | None:
    """The syntax tree of a text; None where it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
        return None


def _tests(gold: dict[str, Any], entry_points: tuple[str, ...]) -> tuple[str, ...]:
    if "check" in gold:
        if len(entry_points) != 1:
            raise UnreadableSuite("a check needs one entry_point")
        return (f"{_text(gold, 'check')}\n\ncheck({entry_points[0]})\n",)
    tests = gold["tests"]
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) and test.strip() for test in tests):
        raise UnreadableSuite("tests is no list of code with at least one item")
    return tuple(tests)


def _cases(cases: Any) -> tuple[Case, ...]:
    if not isinstance(cases, list) or not all(
        isinstance(case, dict)
        and set(case) == {"stdin", "stdout"}
        and all(isinstance(each, str) for each in case.values())
        for case in cases
    ):
        raise UnreadableSuite('cases is no list of {"stdin": text, "stdout": text}')
    if not any(case["stdout"].strip() for case in cases):
        raise UnreadableSuite("no case expects any output, so an empty program would pass")
    return tuple(Case(case["stdin"], case["stdout"]) for case in cases)


def _entry_points(gold: dict[str, Any]) -> tuple[str, ...]:
    given = gold.get("entry_point", [])
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise UnreadableSuite("entry_point is no name and no list of names")
    return tuple(names)


def _text(gold: dict[str, Any], key: str) -> str:
    if not isinstance(gold.get(key, ""), str):
        raise UnreadableSuite(f"{key} is a {type(gold[key]).__name__}, not text")
    return str(gold.get(key, ""))
