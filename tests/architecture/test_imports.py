"""The rooms and the arrows between them, read off the source."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [path for room in ("flows", "tasks", "storage") for path in sorted((ROOT / room).rglob("*.py"))]

# Which modules (by their first names) a file of a room may never import, also inside functions.
FORBIDDEN = {
    r"flows/[^/]+\.py": {"torch", "transformers", "pyarrow", "mlflow", "vllm", "numpy", "datasets"},
    r"tasks/[^/]+\.py": {"torch", "transformers", "pyarrow", "mlflow", "vllm", "numpy", "datasets", "flows"},
    r"tasks/[^/]+/.+\.py": {"prefect", "mlflow", "storage", "flows", "os.environ", "time", "datetime"},
    r"storage/.+\.py": {"tasks", "flows", "prefect", "torch", "transformers"},
    r"tasks/.+/config\.py": {"torch", "transformers", "pyarrow", "numpy"},
}
# The rooms that decide where work runs and watch child processes may read the clock; the doctor looks at the devices.
EXCEPTIONS = {
    "tasks/verifiers/child.py": {"time"},
    "flows/doctor.py": {"torch"},
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    name = path.relative_to(ROOT).as_posix()
    forbidden = {module for pattern, modules in FORBIDDEN.items() if re.fullmatch(pattern, name) for module in modules}
    assert not (set(imported(path)) & forbidden) - EXCEPTIONS.get(name, set())


@pytest.mark.parametrize(
    "path", [p for p in FILES if re.fullmatch(r"tasks/[^/]+/.+\.py", p.relative_to(ROOT).as_posix())], ids=str
)
def test_nouns_read_neither_the_environment_nor_a_whole_recipe(path):
    text = path.read_text(encoding="utf-8")
    assert "PipelineConfig" not in text
    if path.name != "child.py":  # hands its own environment on to the process that it starts
        assert "os.environ" not in text
        assert "getenv" not in text


def test_a_stage_is_never_cached_by_prefect():
    for path in (ROOT / "tasks").glob("*.py"):
        for decorator in re.findall(r"@task\(.*\)", path.read_text()):
            assert "cache_policy=NO_CACHE" in decorator, path


def test_flows_catch_no_error_of_a_stage():
    for name in ("iterate", "bootstrap", "evaluate_policy"):
        tree = ast.parse((ROOT / "flows" / f"{name}.py").read_text())
        assert not any(isinstance(node, ast.Try) for node in ast.walk(tree))


def test_packages_are_empty():
    for path in (ROOT / room / "__init__.py" for room in ("flows", "tasks", "storage")):
        assert path.read_text() == ""
    assert all(path.read_text() == "" for path in ROOT.glob("tasks/*/__init__.py"))
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_module_bears_the_name_of_a_library_or_a_room():
    taken = {*sys.stdlib_module_names, "flows", "tasks", "storage", "tests", "datasets", "torch", "mlflow", "prefect"}
    for path in [*(ROOT / "flows").glob("*.py"), *(ROOT / "tasks").glob("*.py")]:
        assert path.stem == "__init__" or path.stem not in taken, path


def test_no_helper_drawer():
    assert not [path for path in FILES if path.stem in {"utils", "helpers", "common", "misc"}]


def test_files_and_functions_stay_short():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 300, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno - node.lineno + 1 <= 65, f"{path}:{node.name}"
