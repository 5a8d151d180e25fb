"""Runs inside the candidate's sandbox: loads the program and answers calls of its functions, one line each.

Nothing here is trusted once the program is loaded: it shares the process. What it can do is answer with other values.
"""

import builtins
import marshal
import os
import sys

from tasks.verifiers.sandboxed.limits import begin
from tasks.verifiers.sandboxed.values import Codec, NotPlain, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any


class Host:
    """The loaded program, and the objects of its own classes that the tests hold, by number."""

    def __init__(self, module: "ModuleType") -> None:
        self._module = module
        self._held: list[Any] = []
        self._codec = Codec(self._hold, self._held.__getitem__)
        self._operations: dict[str, Callable[..., Any]] = {
            "name": lambda name: getattr(self._module, name),
            "get": getattr,
            "set": setattr,
            "iter": iter,
            "next": next,
            "len": len,
            "item": lambda holder, key: holder[key],
        }

    def answer(self, request: "dict[str, Any]") -> "dict[str, Any]":
        """{"value": ...}, or {"raised": a built-in exception's name, "message": ...}."""
        try:
            arguments = self._codec.decode(request["arguments"])
            if request["operation"] == "call":
                target, positional, named = arguments
                value = target(*positional, **named)
            else:
                value = self._operations[request["operation"]](*arguments)
            return {"value": self._codec.encode(value)}
        except BaseException as error:  # noqa: BLE001  # a program may raise anything, SystemExit included
            return raised(error)

    def _hold(self, value: "Any") -> int:
        self._held.append(value)
        return len(self._held) - 1


def raised(error: BaseException) -> "dict[str, Any]":
    """The first built-in class of the exception's ancestors, and what it says."""
    known = (kind.__name__ for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    try:
        message = str(error)[:300]
    except BaseException:  # noqa: BLE001  # its own __str__
        message = ""
    name = "NotPlain" if isinstance(error, NotPlain) else next(known)
    return {"raised": name, "message": message}


def load(brief: "dict[str, Any]") -> "ModuleType":
    """The program as a module, after the set-up code where that runs without the program."""
    module = type(sys)("program")
    sys.modules["program"] = module
    try:
        exec(compile(brief["setup"], "setup.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except Exception:  # noqa: BLE001, S110  # set-up code may need the program's names: then the tests alone run it
        pass
    exec(compile(brief["program"], "program.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module


def lines_of(descriptor: int) -> "Iterator[str]":
    with open(descriptor, encoding="ascii", newline="\n") as file:
        yield from file


def main() -> None:
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    brief = begin()
    answers = open(replies, "w", encoding="ascii", newline="\n")  # noqa: SIM115  # for the life of the process
    try:
        host = Host(load(brief))
        first: dict[str, Any] = {"value": None}
    except BaseException as error:  # noqa: BLE001
        first = raised(error)
    print(text_of(first), file=answers, flush=True)
    if "raised" not in first:
        for line in lines_of(requests):
            request = marshal.loads(bytes.fromhex(line))  # noqa: S302  # the tests' process is trusted
            print(text_of(host.answer(request)), file=answers, flush=True)
    os._exit(0)  # neither exit handlers nor threads of the program are waited for
