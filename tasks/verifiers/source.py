"""What every verifier's settings begin with: the name of its columns, its weight and its deadline."""

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
    deadline_seconds: float | None = Field(default=None, gt=0, exclude_if=lambda seconds: seconds is None)
    """Time for one row of this source; None takes scoring.row_deadline_seconds. Left out of what is recorded when None, so
    that tables and lineages from before there was this setting are found again."""

    @property
    def compares_groups(self) -> bool:
        """Whether it is asked about all completions of a prompt at once. Then the time of one row counts for each."""
        return False

    @property
    def reads_token_ids(self) -> bool:
        """Whether it wants ``ScoreItem.completion_token_ids``."""
        return False

    @property
    def longest_seconds(self) -> float:
        """The time that its own waiting (time limits, retries) may take for one row; 0 where it never waits."""
        return 0.0
