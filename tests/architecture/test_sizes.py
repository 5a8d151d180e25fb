"""A file or a function that grows past these has a concept without a name in it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = sorted(path for room in ("flows", "tasks", "storage", "benchmarks") for path in ROOT.glob(f"{room}/**/*.py"))

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60


def long_functions(tree, most):
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [node.name for node in functions if node.end_lineno - node.lineno + 1 > most]


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert long_functions(ast.parse(text), MAX_FUNCTION_LINES) == []


def test_the_rule_counts_methods_and_inner_functions_from_def_to_the_last_line():
    source = "class A:\n    def f(self):\n        def g():\n            return 1\n        return g\n"
    assert long_functions(ast.parse(source), 3) == ["f"]
    assert long_functions(ast.parse(source), 1) == ["f", "g"]
    assert long_functions(ast.parse(source), 4) == []
