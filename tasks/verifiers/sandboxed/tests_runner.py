"""Runs inside the tests' sandbox: executes the tests, with stand-ins for what the program defines.

Nothing of the program runs here. A line on the output is a test's result or, after a question mark, a request to the
candidate, whose reply comes as a line on the input.
"""

import json
import os
from collections.abc import Callable
from typing import Any

from tasks.verifiers.sandboxed.limits import begin
from tasks.verifiers.sandboxed.names import program_names
from tasks.verifiers.sandboxed.remote import Connection, RemoteName, Untestable


def namespace_of(brief: dict[str, Any], connection: Connection) -> dict[str, Any]:
    """The names that the tests see: the set-up code's own, and stand-ins for the program's."""
    given = [brief["prefix"], brief["setup"]]
    entry_points, modules = program_names(given, brief["tests"])
    entry_points = set(brief["entry_points"]) or entry_points
    stand_ins = {name: RemoteName(connection, name) for name in entry_points}
    namespace: dict[str, Any] = {"__name__": "tests", **stand_ins}
    namespace.update({name: __import__(name) for name in modules - entry_points})
    for source in given:
        exec(compile(source, "setup.py", "exec", dont_inherit=True), namespace)  # noqa: S102  # the data set's own code
    # The prefix holds the head of the function that is asked for; the program's stands in its place.
    namespace.update({name: stand_ins[name] for name in brief["entry_points"]})
    return namespace


def run(test: str, namespace: dict[str, Any], connection: Connection) -> dict[str, Any]:
    """{"passed": ..., "reason": ...}; {"untestable": why} when the test itself is at fault."""
    try:
        exec(compile(test, "test.py", "exec", dont_inherit=True), namespace)  # noqa: S102
    except BaseException as error:  # noqa: BLE001  # a test fails with whatever it raises
        reason = f"{type(error).__name__}: {error}"[:300].strip(": ")
        is_own = isinstance(error, Untestable) or (isinstance(error, NameError) and was_raised_in_tests(error))
        if is_own and not connection.has_raised(error):
            return {"untestable": reason}
        return {"passed": False, "reason": reason}
    return {"passed": True, "reason": ""}


def was_raised_in_tests(error: BaseException) -> bool:
    """Whether the line that raised is the tests' own, and not one of text that they evaluate."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_filename in ("test.py", "setup.py")


def serve(brief: dict[str, Any], exchange: Callable[[str], str], report: Callable[[dict[str, Any]], None]) -> None:
    """Run the tests from number ``first`` on and report each; the last report says how many requests there were."""
    connection = Connection(exchange)
    try:
        namespace = namespace_of(brief, connection)
    except BaseException as error:  # noqa: BLE001
        reason = f"{type(error).__name__}: {error}"[:300]
        is_programs = connection.has_raised(error)
        report({"unprepared": reason} if is_programs else {"untestable": f"the set-up code raises {reason}"})
        return
    for test in brief["tests"][brief["first"] :]:
        report(run(test, namespace, connection))
    report({"num_requests": connection.num_requests})


def main() -> None:
    requests, replies = os.dup(1), os.dup(0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    brief = begin()
    source = open(replies, encoding="ascii", errors="replace", newline="\n")  # noqa: SIM115  # for the life of the process
    sink = open(requests, "w", encoding="ascii", newline="\n")  # noqa: SIM115

    def send(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=sink, flush=True)

    def exchange(request: str) -> str:
        print("?", request, sep="", file=sink, flush=True)
        return source.readline()

    serve(brief, exchange, send)
    os._exit(0)
