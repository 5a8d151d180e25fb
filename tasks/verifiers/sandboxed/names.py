"""Which names of the tests are the program's to define."""

import ast
import builtins
import sys
from collections.abc import Sequence


def used_and_bound(sources: Sequence[str]) -> tuple[set[str], set[str]]:
    """The names that code reads, and those that it binds anywhere, as variable, argument, import or definition.

    Raises:
        SyntaxError, ValueError: it is no Python.
    """
    used: set[str] = set()
    bound: set[str] = set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return used, bound


def program_names(sources: Sequence[str], tests: Sequence[str]) -> tuple[set[str], set[str]]:
    """The names that the program must define, and the standard modules that the tests use without an import.

    What the tests read and neither they nor Python define is the program's. Where that leaves nothing, the program
    redefines a built-in function: the one that the first test calls first.

    Args:
        sources: set-up code.
        tests: what decides.
    """
    used, bound = used_and_bound([*sources, *tests])
    unknown = used - bound - set(dir(builtins))
    modules = unknown & sys.stdlib_module_names & attribute_owners([*sources, *tests])
    unknown -= modules
    return unknown or first_called(tests) - bound, modules


def attribute_owners(sources: Sequence[str]) -> set[str]:
    """The names before a dot."""
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    return {node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}


def first_called(tests: Sequence[str]) -> set[str]:
    """The name in the first call of the first test; nothing where no name is called."""
    calls = [node for test in tests[:1] for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Call)]
    named = [node.func for node in calls if isinstance(node.func, ast.Name)]
    return {min(named, key=lambda name: (name.lineno, name.col_offset)).id} if named else set()
