"""Before a program runs: its limits, its instructions, and the end of its ties to who started it."""

import json
import os
import resource
import sys
from typing import Any


def begin() -> dict[str, Any]:
    """Read the instructions, lower this process's limits for good, and say that the sandbox stands.

    The arguments are the descriptors of the instructions and of the pipe on which a byte says so.
    """
    instructions, ready = int(sys.argv[1]), int(sys.argv[2])
    with open(instructions, "rb") as file:
        brief: dict[str, Any] = json.loads(file.read())
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
