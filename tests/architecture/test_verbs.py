"""What makes a stage durable is our own commit: no verb leans on Prefect's cache, no flow swallows a stage's error."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERBS = sorted(path for path in ROOT.glob("tasks/*.py") if path.name != "__init__.py")
FLOWS = sorted(path for path in ROOT.glob("flows/*.py") if path.name != "__init__.py")


def uncached_tasks(tree):
    """(functions decorated as a task, those of them without ``cache_policy=NO_CACHE``)."""
    tasks, wrong = [], []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            if ast.unparse(decorator).partition("(")[0] in ("task", "prefect.task"):
                tasks.append(node.name)
                settings = decorator.keywords if isinstance(decorator, ast.Call) else []
                if "NO_CACHE" not in [ast.unparse(each.value) for each in settings if each.arg == "cache_policy"]:
                    wrong.append(node.name)
    return tasks, wrong


def catches(tree):
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]


def defines_a_flow(tree):
    decorators = [each for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for each in node.decorator_list]
    return any(ast.unparse(each).partition("(")[0] == "flow" for each in decorators)


@pytest.mark.parametrize("path", VERBS, ids=lambda path: path.name)
def test_every_task_turns_the_cache_of_prefect_off(path):
    """With it, a task whose argument is a path gives the old answer for new bytes: PrefectHQ/prefect issue 15760."""
    assert uncached_tasks(ast.parse(path.read_text()))[1] == []


@pytest.mark.parametrize("path", VERBS, ids=lambda path: path.name)
def test_every_file_of_a_verb_holds_a_task(path):
    assert uncached_tasks(ast.parse(path.read_text()))[0] != []


def test_the_rule_sees_a_task_in_every_form():
    source = "@task\ndef a(): ...\n@task(retries=2)\ndef b(): ...\n@task(cache_policy=NO_CACHE)\ndef c(): ...\n"
    assert uncached_tasks(ast.parse(source)) == (["a", "b", "c"], ["a", "b"])


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_a_file_with_a_flow_catches_no_error(path):
    tree = ast.parse(path.read_text())
    assert not defines_a_flow(tree) or catches(tree) == []


def test_there_are_flows_to_look_at():
    assert {path.stem for path in FLOWS if defines_a_flow(ast.parse(path.read_text()))} >= {"iterate", "bootstrap"}
