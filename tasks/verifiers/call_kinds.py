"""Settings of the verifiers that run or call something: programs, tools, functions, judges."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.verifiers.source import Source, named

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
