"""The arrows: who may import whom, who may look at the environment and the clock, and what a file may be called."""

import ast
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("flows", "tasks", "storage")

TENSORS = {"torch", "transformers", "vllm", "safetensors", "peft"}
TABLES = {"pyarrow", "pandas", "datasets"}

# Files of the tree -> modules that they may not import, at the top or inside a function.
FORBIDDEN = {
    "flows/*.py": TENSORS | TABLES | {"mlflow", "numpy"},
    "tasks/*.py": TENSORS | TABLES | {"mlflow", "numpy", "flows", "deployments"},
    "tasks/*/*.py": {"prefect", "mlflow", "storage", "flows", "deployments"},
    "storage/*.py": {"tasks", "flows", "prefect", "deployments"} | TENSORS,
    "flows/config.py": {"prefect", "storage"},
    "tasks/*/config.py": TENSORS | TABLES | {"numpy"},
    "tasks/values/*.py": {"tasks.runtime", *TENSORS},
}

# What a noun may not read: it is handed its settings, and the time does not change what it computes.
AMBIENT = {
    "os.environ",
    "os.environb",
    "os.getenv",
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
}


def files(glob):
    return sorted(path for path in ROOT.glob(glob) if path.name != "__init__.py")


def imports(tree):
    """The full names of every imported module, with the line; ``from a import b`` gives a and a.b."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the arrow"
            found.append((node.module, node.lineno))
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def is_in(module, packages):
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def wrong_imports(tree, forbidden):
    return sorted({(line, module) for module, line in imports(tree) if is_in(module, forbidden)})


def verbs():
    return {f"tasks.{path.stem}" for path in files("tasks/*.py")}


def ambient_reads(tree):
    """Uses of the environment or the clock, however they were imported."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            found += [(node.lineno, name) for name in AMBIENT if dotted == name or dotted.endswith(f".{name}")]
        elif isinstance(node, ast.ImportFrom):
            found += [
                (node.lineno, name) for name in AMBIENT if name in {f"{node.module}.{a.name}" for a in node.names}
            ]
    return found


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def cases(globs):
    return [
        pytest.param(path, glob, id=f"{path.relative_to(ROOT)} as {glob}") for glob in globs for path in files(glob)
    ]


@pytest.mark.parametrize("glob", FORBIDDEN)
def test_a_rule_has_files_to_rule(glob):
    assert files(glob)


@pytest.mark.parametrize(("path", "glob"), cases(FORBIDDEN))
def test_imports_point_one_way(path, glob):
    assert wrong_imports(parsed(path), FORBIDDEN[glob]) == []


@pytest.mark.parametrize("path", [path for room in ROOMS for path in files(f"{room}/**/*.py")], ids=str)
def test_the_product_imports_neither_its_peers_nor_its_tests(path):
    assert wrong_imports(parsed(path), {"trl", "verl", "openrlhf", "pytest", "hypothesis", "tests", "benchmarks"}) == []


@pytest.mark.parametrize(("path", "glob"), cases(["tasks/*/*.py"]))
def test_a_noun_does_not_know_the_verbs(path, glob):
    assert wrong_imports(parsed(path), verbs()) == []


@pytest.mark.parametrize(("path", "glob"), cases(["tasks/*/*.py"]))
def test_a_noun_reads_neither_the_environment_nor_the_clock(path, glob):
    if path.parent.name != "runtime":
        assert ambient_reads(parsed(path)) == []


@pytest.mark.parametrize(("path", "glob"), cases(["storage/*.py"]))
def test_mlflow_is_imported_where_it_is_used_not_at_the_top(path, glob):
    top = ast.Module([node for node in parsed(path).body if isinstance(node, (ast.Import, ast.ImportFrom))], [])
    assert wrong_imports(top, {"mlflow"}) == []


@pytest.mark.parametrize(
    ("source", "forbidden", "lines"),
    [
        ("import torch", {"torch"}, [1]),
        ("import torch.nn as nn", {"torch"}, [1]),
        ("from torch.nn import Linear", {"torch"}, [1]),
        ("def f():\n    import torch", {"torch"}, [2]),
        ("if x:\n    from storage import tables", {"storage"}, [2]),
        ("from tasks import generate", {"tasks.generate"}, [1]),
        ("import torchvision, storage_of_mine", {"torch", "storage"}, []),
        ("from tasks.rollout.engine import Engine", {"tasks.roll"}, []),
    ],
)
def test_the_rule_sees_an_import_in_every_form(source, forbidden, lines):
    assert sorted({line for line, _ in wrong_imports(ast.parse(source), forbidden)}) == lines


@pytest.mark.parametrize(
    ("source", "num_reads"),
    [
        ("import os\nx = os.environ['A']", 1),
        ("import os\nx = os.getenv('A')", 1),
        ("from os import environ", 1),
        ("import time\nx = time.time()", 1),
        ("from time import time", 1),
        ("import datetime\nx = datetime.datetime.now()", 1),
        ("from datetime import datetime\nx = datetime.now()", 1),
        ("import os, time\nx = os.read(0, 1)\ny = time.monotonic()", 0),
    ],
)
def test_the_rule_sees_the_environment_and_the_clock_in_every_form(source, num_reads):
    assert len(ambient_reads(ast.parse(source))) == num_reads


@pytest.mark.parametrize("path", sorted(p for room in ROOMS for p in ROOT.glob(f"{room}/**/__init__.py")), ids=str)
def test_a_package_file_is_empty(path):
    assert path.read_bytes() == b""


def test_every_folder_of_code_is_a_package_and_no_folder_of_tests_is():
    folders = {path.parent for room in ROOMS for path in ROOT.glob(f"{room}/**/*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
    assert list(ROOT.glob("tests/**/__init__.py")) == []


@cache
def taken_names():
    folders = {each.name for each in ROOT.iterdir() if each.is_dir()}
    everything = [path for room in ROOMS for path in files(f"{room}/**/*.py")]
    imported = {module.partition(".")[0] for path in everything for module, _ in imports(parsed(path))}
    installed = set(
        packages_distributions()
    )  # what our libraries import matters as well: flows/requests.py hid requests
    return sys.stdlib_module_names | folders | imported | installed | {"tests", "benchmarks", "deployments"}


@pytest.mark.parametrize(("path", "glob"), cases(["flows/*.py", "tasks/*.py"]))
def test_a_file_that_prefect_may_put_first_on_the_path_hides_no_module(path, glob):
    """Prefect puts the folder of an entry point first on the path: there, flows/queue.py would be ``queue``."""
    assert path.stem not in taken_names()
