"""A stop-watch that gives every moment to the innermost of the measured functions that is running."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class StopWatch:
    """Seconds by name; a function's time is without that of the measured ones it calls. For one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """What happens inside belongs to ``name``."""
        self._book()
        self._running.append(name)
        try:
            yield
        finally:
            self._book()
            self._running.pop()

    def measured(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, its time booked under ``name``."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.of(name):
                return function(*args, **kwargs)

        return timed

    def measure(self, owner: Any, attributes: str, name: str) -> None:
        """Replace functions of a module, class or object (their names, separated by blanks) by measured ones."""
        for attribute in attributes.split():
            setattr(owner, attribute, self.measured(getattr(owner, attribute), name))

    def _book(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] = self.seconds.get(self._running[-1], 0.0) + now - self._since
        self._since = now
