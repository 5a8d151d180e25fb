"""Before a program runs: its limits, its instructions, and the end of its ties to who started it."""

import marshal
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing, json or re takes longer than the rest of a sandbox's start
    from typing import Any


def begin() -> "dict[str, Any]":
    """Read the instructions, lower this process's limits for good, and say that the sandbox stands.

    The arguments are the descriptors of the instructions and of the pipe on which a byte says so.
    """
    instructions, ready = int(sys.argv[1]), int(sys.argv[2])
    with open(instructions, "rb") as file:
        brief: dict[str, Any] = marshal.loads(file.read())  # noqa: S302  # written by who started this process
    for name, value in brief["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    sys.set_int_max_str_digits(0)  # the time limit bounds such a conversion, and a large result is a right one
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 2)
    os.close(null)
    os.write(ready, b".")
    os.close(ready)
    sys.argv[:] = ["program.py"]
    return brief
