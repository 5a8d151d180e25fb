"""Find the program in a completion."""

import ast
from textwrap import dedent

from tasks.verifiers.extraction import after_reasoning
from tasks.verifiers.suites import Suite, is_python, parsed

MAX_PROGRAM_CHARACTERS = 1 << 16
PYTHON_LABELS = ("python", "py", "python3")


class NoProgram(ValueError):
    """A completion that holds no program; the message says why."""


def program_of(completion: str, reasoning_end: str, suite: Suite) -> str:
    """The source of the completion's program.

    It is the last ```python fence after the reasoning, else the last fence without a label, else all that follows the
    reasoning. With a prefix it may be the prefix's continuation (a function's body) or stand for itself: then it defines
    the entry point, and the prefix's imports and other functions stand before it. After a continuation without a fence,
    the lines that are not indented any more are left out where they are no Python.

    Raises:
        NoProgram: there is none.
    """
    text = after_reasoning(completion, reasoning_end)
    fenced = last_fence(text)
    source = text if fenced is None else fenced
    if not source.strip():
        raise NoProgram("there is no program")
    if len(source) > MAX_PROGRAM_CHARACTERS:
        raise NoProgram(f"the program has {len(source)} characters")
    tree = parsed(source)
    if tree is not None and (not suite.prefix or defines(tree, suite.entry_points)):
        return f"{suite.prefix_code}\n\n{source}"
    if suite.prefix:
        for continuation in (source, indented_lines(source)):
            if continuation.strip() and is_python(suite.prefix + continuation):
                return suite.prefix + continuation
    raise NoProgram(
        "the program is no Python" if fenced is not None else "there is no fence, and the text is no Python"
    )


def last_fence(text: str) -> str | None:
    """What stands in the last ```python fence, else in the last without a label; None without one.

    A fence that is never closed ends with the text.
    """
    found: dict[bool, str] = {}
    label: str | None = None
    block: list[str] = []
    for line in [*text.split("\n"), None]:
        stripped = "```" if line is None else line.strip()
        if label is None:
            if line is not None and stripped.startswith("```"):
                label, block = stripped[3:].strip().lower(), []
        elif stripped == "```":
            if label in ("", *PYTHON_LABELS):
                found[label != ""] = dedent("\n".join(block))
            label = None
        else:
            assert line is not None
            block.append(line)
    return found.get(True, found.get(False))


def defines(tree: ast.Module, names: tuple[str, ...]) -> bool:
    """Whether a program binds one of the names at its top level."""
    bound: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.Assign):
            bound.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return bool(bound.intersection(names))


def indented_lines(text: str) -> str:
    """The text up to the first line that is neither blank nor indented."""
    kept = []
    for line in text.split("\n"):
        if line.strip() and not line[0].isspace():
            break
        kept.append(line)
    return "\n".join(kept)
