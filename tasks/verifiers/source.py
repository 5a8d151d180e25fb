"""What every verifier's settings begin with: the name of its columns and its weight."""

from typing import Any

from pydantic import Field

from tasks.values.frozen import Frozen

SOURCE_NAME = r"^[a-z][a-z0-9_]{0,31}$"


def named(default: str) -> Any:
    """A source's name, which becomes a prefix of columns; two sources of one kind need different ones."""
    return Field(default=default, pattern=SOURCE_NAME)


class Source(Frozen):
    """One reward of a completion."""

    name: str
    weight: float = 1.0
    """Its factor in the reward; 0 records it without counting it."""

    @property
    def longest_seconds(self) -> float:
        """Within this time its own limits bring a row to a verdict; 0 for one that has none."""
        return 0.0
