"""Settings of the verifiers that run or call something: programs, tools, functions, judges."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.verifiers.source import Source, named


class ToolCallsVerifier(Source):
    """1.0 when the completion makes the expected tool calls and no others, else 0.0.

    The gold answer is JSON: ``{"calls": [{"name": "f", "arguments": {"x": 1}}]}`` gives exact values;
    ``{"acceptable": [{"f": {"x": [1, 2], "unit": ["km", ""]}}]}`` is BFCL's ``ground_truth`` as it stands, a list of
    acceptable values for each argument, "" among them where it may be left out. An empty list: no call may be made.
    ``"ordered": true`` or ``false`` beside it overrides the setting for that row.
    """

    kind: Literal["tool_calls"]
    name: str = named("tool_calls")
    ordered: bool = False
    """Whether the calls must come in the order of the gold answer."""
    strings: Literal["exact", "relaxed"] = "exact"
    """"relaxed": as in BFCL, case, spaces and the characters ,./-_*^ do not matter, ' is "."""
    scoring: Literal["all", "fraction"] = "all"
    """"fraction": matched calls / the larger number of the expected and the given ones, so that each call too many costs."""
    surroundings: Literal["text", "nothing"] = "text"
    """"nothing": after the reasoning the completion holds its calls and white space only; where no call may be made, any
    text is an answer."""
    reasoning_end: str = "</think>"
    """A call before the last of these, or in a reasoning that never ends, is a thought; "" looks everywhere."""


Isolation = Literal["sandbox", "process"]


class CodeVerifier(Source):
    """1.0 when the Python program of the completion passes the tests of the gold answer, else 0.0."""

    kind: Literal["code"]
    name: str = named("code")
    reasoning_end: str = "</think>"
    """What precedes the last of these is not searched for a program; "" searches everything."""
    scoring: Literal["all", "fraction"] = "all"
    """all: 1.0 when every test passes. fraction: the share of tests that pass."""
    isolation: Isolation = "sandbox"
    """sandbox: bubblewrap; where it can not run every row is an error. process: limits and a process of its own only, which
    keeps no program from reading the machine's files or from using its network; every reason says so."""
    timeout_seconds: float = Field(default=2.0, gt=0)
    """Wall-clock time of one test or case; the program's own start counts for the first."""
    total_seconds: float = Field(default=4.0, gt=0)
    """Wall-clock time of all tests of a row."""
    memory_mib: int = Field(default=256, ge=64)
    """Address space of each process of a program, and no more than 16 processes or threads."""

    @model_validator(mode="after")
    def _check(self) -> "CodeVerifier":
        if self.total_seconds < self.timeout_seconds:
            raise ValueError(
                f"total_seconds {self.total_seconds:g} is less than timeout_seconds {self.timeout_seconds:g}; raise it"
            )
        return self

    @property
    def longest_seconds(self) -> float:
        """A row's verdict comes within this time: the tests, and a second to start and to end processes."""
        return self.total_seconds + 1.0
