"""Runs inside the sandbox: a program that reads its input and prints its output."""

import sys

from tasks.verifiers.sandboxed.limits import begin


def main() -> None:
    source = begin()["program"]
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # that is its work
