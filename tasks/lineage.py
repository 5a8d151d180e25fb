"""Open a lineage for this process: the lock, the recorded recipe, what is left to do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import decisions, delivery, iterations, lineages, lock, room, summaries, tables
from storage.errors import StorageError
from storage.home import store_root
from storage.iterations import IterationRecord
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.draw_anchor import ANCHOR
from tasks.runtime import residents


class NoSignal(ValueError):
    """A run that has nothing to learn from; nothing is lost."""


@contextmanager
def hold_lineage(name: str, wait_seconds: float = 0.0) -> Iterator[Place]:
    """Hold the lineage while the block runs, at most ``wait_seconds`` after asking; unfinished writes of dead runs are swept first.

    When the block fails, the tracking runs it left open are marked FAILED before the lock is given back: an MLflow run
    that nobody closes would stay RUNNING, or look green. What the run kept in memory, servers and verifier processes among
    it, ends before the lock is given back too.

    Raises:
        LineageBusy: another run holds it. DiskFull, ReadOnlyStore: the store took no more bytes, however deep down a
            library met that.
    """
    root = store_root(os.environ, Path.cwd())
    with room.missing_room_named(root, name), lock.hold(root, name, wait_seconds=wait_seconds) as place:
        lineages.sweep(place)
        try:
            yield place
        except BaseException:
            delivery.close(place, "FAILED")
            raise
        finally:
            residents.clear()


@task(cache_policy=NO_CACHE)
def remember_recipe(place: Place, recipe: dict[str, Any]) -> None:
    """Record the recipe of a new lineage; RecipeConflict when an old lineage has another."""
    lineages.record_recipe(place, recipe)


@task(cache_policy=NO_CACHE)
def plan_iterations(place: Place, completed: int, num_iterations: int) -> list[int]:
    """The iterations to run: what is left of an interrupted request, or ``num_iterations`` new ones."""
    target = lineages.target_iteration(place, completed, num_iterations)
    return list(range(completed + 1, target + 1))


@task(cache_policy=NO_CACHE)
def end_request(place: Place) -> None:
    """All that was asked is done: the summary holds it (a killed run may not have come to that), the next run asks anew."""
    summaries.write_summary(place, summaries.summary_of(Path(place.root), place.lineage))
    lineages.close_request(place)


@task(cache_policy=NO_CACHE)
def last_record(place: Place) -> IterationRecord | None:
    """The newest finished iteration with what was decided by hand since, None before the bootstrap is finished."""
    record = iterations.latest_record(Path(place.root), place.lineage)
    if record is None:
        if (parent := lineages.read_parent(Path(place.root), place.lineage)) is not None:
            raise StorageError(
                f"lineage {place.lineage!r} is a branch whose first record is not whole; finish it first: "
                f"igrpo branch {parent.lineage}@{parent.version} {place.lineage}"
            )
        return None
    seen = decisions.in_force(record, decisions.decisions(Path(place.root), place.lineage))
    return seen if ANCHOR in seen.tables else _with_empty_anchor(place, seen)


def _with_empty_anchor(place: Place, record: IterationRecord) -> IterationRecord:
    """The record of a lineage from before there were anchor sets: an empty one, with which nothing is ever refused."""
    labels, here = record.tables["labels"], place.at(iteration=0)
    provenance = Provenance(stage=labels.table, inputs={}, config={"num_rows": 0})
    anchor = tables.find(here, labels.table, provenance, name=ANCHOR) or tables.publish(
        here, labels.table, [], provenance, name=ANCHOR, metrics={"num_rows": 0.0}
    )
    return record.model_copy(update={"tables": {**record.tables, ANCHOR: anchor}})


@task(cache_policy=NO_CACHE)
def check_signal(place: Place, max_no_signal_iterations: int) -> None:
    """Stop a run that learns nothing.

    Raises:
        NoSignal: the last ``max_no_signal_iterations`` iterations had nothing to learn from; all of them are recorded.
    """
    outcomes = [record.outcome for record in iterations.records(Path(place.root), place.lineage)]
    if len(outcomes) > max_no_signal_iterations and set(outcomes[-max_no_signal_iterations:]) == {"no_signal"}:
        raise NoSignal(
            f"the last {max_no_signal_iterations} iterations of {place.lineage} had no group whose completions differ in "
            "reward: the prompts are too easy or too hard for the policy, or the verifier rejects everything; look at "
            "`igrpo show .../step-001/rewards`. Another run does further iterations"
        )


@task(cache_policy=NO_CACHE)
def first_policy(place: Place) -> ModelRef:
    """The policy that the lineage began with."""
    return iterations.records(Path(place.root), place.lineage)[0].policy


@task(cache_policy=NO_CACHE)
def label_history(place: Place) -> list[DatasetRef]:
    """The new labels of every iteration before this one, the reward model's initial set and those before a branch included."""
    found = iterations.records(Path(place.root), place.lineage)
    earlier = [record for record in found if record.iteration < place.iteration]
    before = [ref for record in earlier for name, ref in record.tables.items() if name.startswith(lineages.HISTORY)]
    return [*before, *(record.tables["labels"] for record in earlier)]
