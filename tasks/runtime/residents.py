"""What stays in memory between the stages of one process, keyed by the digest of the bytes it was made from.

A resident saves the loading, never the answer: without it the same object is read from the checkpoint. Training changes
weights in place, so it must ``take`` a resident out (nobody else can find it under the old digest any more) and ``keep``
it under the new digest once the new checkpoint is committed; a stage that fails in between leaves no wrong resident.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_residents: dict[str, tuple[str, object]] = {}


def get(slot: str, digest: str, load: Callable[[], T]) -> T:
    """The resident of ``slot`` made from ``digest``, loaded (and kept in place of the slot's former one) when absent."""
    held = _residents.get(slot)
    if held is not None and held[0] == digest:
        return held[1]  # type: ignore[return-value]  # a slot holds one type, by its users' agreement
    drop(slot)  # freed before loading: two models at once may not fit
    value = load()
    _residents[slot] = (digest, value)
    return value


def take(slot: str, digest: str, load: Callable[[], T]) -> T:
    """Like ``get``, but the slot is empty afterwards: for work that changes the object in place."""
    value = get(slot, digest, load)
    del _residents[slot]
    return value


def keep(slot: str, digest: str, value: object) -> None:
    """Make ``value`` the resident of ``slot`` for ``digest``."""
    _residents[slot] = (digest, value)


def drop(slot: str) -> None:
    """Empty a slot; an object that has a ``close`` (child processes, say) is closed."""
    _, value = _residents.pop(slot, ("", None))
    if (close := getattr(value, "close", None)) is not None:
        close()


def clear() -> None:
    """Forget every resident (frees their memory and ends their processes)."""
    for slot in list(_residents):
        drop(slot)
