"""What a deployed run finds when its time comes: the lineage free or held, something to do or nothing."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import iterations, lineages, lock
from storage.errors import LineageBusy
from storage.home import store_root
from storage.iterations import RECORD
from storage.manifest import created_at
from storage.refs import Frozen, Place
from tasks.lineage import hold_lineage

WhenBusy = Literal["wait", "skip"]


class Held(Frozen):
    """The lineage, held by this run; or None and who holds it."""

    place: Place | None
    busy: str = ""


@contextmanager
def hold_when_free(name: str, when_busy: WhenBusy, max_wait_minutes: float) -> Iterator[Held]:
    """Hold the lineage while the block runs, or find it held by another.

    "skip" gives up at once and says who holds it; "wait" waits.

    Raises:
        LineageBusy: it was still held after ``max_wait_minutes``.
    """
    with ExitStack() as stack:
        wait_seconds = max_wait_minutes * 60 if when_busy == "wait" else 0.0
        try:
            held = Held(place=stack.enter_context(hold_lineage(name, wait_seconds)))
        except LineageBusy as error:
            if when_busy == "wait":
                raise
            held = Held(place=None, busy=str(error))
        yield held


@task(cache_policy=NO_CACHE)
def recorded_recipe(name: str) -> dict[str, Any]:
    """The recipe that the lineage was born with; UnknownLineage names those that there are. Makes no folder."""
    root = store_root(os.environ, Path.cwd())
    lock.refresh(root)  # on an object store, what other machines recorded
    return lineages.read_recipe(root, name)


@task(cache_policy=NO_CACHE)
def nothing_to_do(place: Place, scheduled_at: datetime | None, stop_at_iteration: int | None) -> str:
    """Why a run that continues the lineage has nothing to do, "" when it has something.

    An interrupted run is always gone on with. Beyond that a run has nothing to do when the lineage stands at
    ``stop_at_iteration``, or when it is late: an iteration was finished after ``scheduled_at``, so that what was asked for at
    that time has been done by a run that came after it. (A worker that was away for three nights runs once, not three times.)
    """
    last = iterations.latest_record(Path(place.root), place.lineage)
    if last is None or lineages.is_interrupted(place):
        return ""
    if stop_at_iteration is not None and last.iteration >= stop_at_iteration:
        return f"{place.lineage} stands at iteration {last.iteration}, and was to stop at {stop_at_iteration}"
    finished = datetime.fromisoformat(created_at(place.at(iteration=last.iteration).folder(RECORD)))
    if scheduled_at is not None and finished > scheduled_at:
        return (
            f"iteration {last.iteration} of {place.lineage} was finished at {finished:%Y-%m-%d %H:%M} UTC, after the time that "
            f"this run was scheduled for ({scheduled_at:%Y-%m-%d %H:%M} UTC)"
        )
    return ""
