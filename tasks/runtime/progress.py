"""Progress of long work: stages report counts, whoever watches decides how to show them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

OnProgress = Callable[[int, int], None]
"""Called with (done, total), both counts since the work began."""


class Display(Protocol):
    """Shows several pieces of work, one after another or at once."""

    def begin(self, label: str, unit: str) -> int: ...
    def update(self, handle: int, done: int, total: int) -> None: ...
    def end(self, handle: int) -> None: ...


class Silent:
    """The display of workers and tests: shows nothing."""

    def begin(self, label: str, unit: str) -> int:
        return 0

    def update(self, handle: int, done: int, total: int) -> None:
        return

    def end(self, handle: int) -> None:
        return


_displays: list[Display] = [Silent()]


@contextmanager
def shown_on(display: Display) -> Iterator[None]:
    """Everything inside reports to ``display``."""
    _displays.append(display)
    try:
        yield
    finally:
        _displays.remove(display)


@contextmanager
def progress(label: str, unit: str) -> Iterator[OnProgress]:
    """One piece of work, for example ``progress("generate", "completions")``; gives the function to report counts to."""
    display = _displays[-1]
    handle = display.begin(label, unit)
    try:
        yield lambda done, total: display.update(handle, done, total)
    finally:
        display.end(handle)
