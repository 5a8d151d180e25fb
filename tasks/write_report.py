"""Write the report of an iteration beside the store's tables, and show it in MLflow."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import delivery, iterations, journal, reports, stages, tables
from storage.errors import UnknownLineage
from storage.refs import Place
from tasks.reporting.contents import Tables, contents_of
from tasks.reporting.page import render


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def write_report(place: Place) -> None:
    """The report of a finished iteration, made from its record and tables, added to its MLflow run.

    A view: nothing depends on it, and it may be written again at any time. What is damaged raises, as everywhere.
    """
    path = make_report(Path(place.root), place.lineage, place.iteration)
    journal.append(place, "page", {"path": str(path.relative_to(place.root))})
    delivery.deliver(place)


def make_report(root: Path, lineage: str, iteration: int | None) -> Path:
    """Write the report of an iteration (the newest finished one for None) and give its path.

    Raises:
        UnknownLineage: the lineage has no such finished iteration.
    """
    records = iterations.records(root, lineage)
    newest = records[-1].iteration if records else -1
    last = newest if iteration is None else iteration
    told = [record for record in records if record.iteration <= last]
    if not told or told[-1].iteration != last:
        has = f"finished iterations {records[0].iteration} to {newest}" if records else "no finished iteration"
        raise UnknownLineage(f"lineage {lineage!r} has {has}, not {'one' if iteration is None else iteration}")
    evaluated = Path(told[-1].tables["evaluation"].uri).parent
    selection, completions, rewards = (
        tables.read(tables.ref_at(evaluated / name)) for name in ("selection", "completions", "rewards")
    )
    contents = contents_of(
        lineage,
        [record.model_dump() for record in told],
        stages.measured(root, lineage, last),
        Tables(selection=selection, completions=completions, rewards=rewards),
    )
    return reports.write_report(root, lineage, last, render(contents).encode("utf-8"))
