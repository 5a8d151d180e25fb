"""What a person sees on the page of a run in Prefect: how far it is, a table and a summary of each iteration, links."""

import re
from pathlib import Path
from uuid import UUID

from prefect import task
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE

from storage import delivery, reports
from storage.iterations import IterationRecord
from storage.refs import Frozen, Place
from tasks.reporting.run_page import iteration_rows, iteration_text


class Shown(Frozen):
    """The progress bar of a run; None where the run has nothing left to do."""

    artifact: UUID | None
    iterations: list[int]
    num_steps: int

    def percent(self, iteration: int, step: int) -> float:
        """Steps done of the steps of this run, 0 to 100. What follows the last step of an iteration counts with it."""
        done = self.iterations.index(iteration) * self.num_steps + step
        return 100.0 * done / (len(self.iterations) * self.num_steps)


@task(cache_policy=NO_CACHE)
def open_progress(lineage: str, iterations: list[int], num_steps: int) -> Shown:
    """A progress bar over the steps of the iterations that this run is to do."""
    artifact = None
    if iterations:
        said = f"{lineage}: iterations {iterations[0]} to {iterations[-1]}, {num_steps} steps each"
        artifact = create_progress_artifact(progress=0.0, key=artifact_key(lineage, "progress"), description=said)
    return Shown(artifact=artifact, iterations=iterations, num_steps=num_steps)


@task(cache_policy=NO_CACHE)
def show_step(shown: Shown, iteration: int, step: int) -> None:
    """Move the bar to the end of this step."""
    if shown.artifact is not None:
        update_progress_artifact(shown.artifact, progress=shown.percent(iteration, step))


@task(cache_policy=NO_CACHE)
def show_iteration(place: Place, before: IterationRecord, record: IterationRecord, mlflow: str) -> None:
    """A table (before, after) and a summary of a finished iteration; ``mlflow`` is its address, "" for none."""
    create_table_artifact(
        table=iteration_rows(before.metrics, record.metrics),
        key=artifact_key(place.lineage, "iteration"),
        description=f"{place.lineage}, iteration {record.iteration}: held-out numbers before and after",
    )
    links = {"report": str(reports.report_path(Path(place.root), place.lineage, record.iteration))}
    if mlflow:
        pages = delivery.addresses(place, {"policy": record.policy, "reward model": record.reward})
        links |= {what: f"{mlflow}/{address}" for what, address in pages.items()}
    facts = {
        "policy": f"v{record.policy.version}",
        "champion": f"v{record.champion.version}: {record.promotion or 'unchanged'}",
        "reward model": f"v{record.reward.version}: {record.reward_promotion or 'unchanged'}",
        "outcome": record.outcome,
        "alarm": record.alarm,
        "guards": "; ".join(record.guards),
        "gone back to": f"v{record.rolled_back_to.version}" if record.rolled_back_to else "",
        "wall time": f"{record.seconds:.0f} s",
    }
    create_markdown_artifact(
        markdown=iteration_text(f"{place.lineage}, iteration {record.iteration}", facts, links),
        key=artifact_key(place.lineage, "summary"),
        description=f"{place.lineage}, iteration {record.iteration}",
    )


def artifact_key(lineage: str, what: str) -> str:
    """Prefect's keys are lower-case letters, digits and dashes: "My_lineage" and "progress" give my-lineage-progress."""
    return f"{re.sub('[^a-z0-9]+', '-', lineage.lower()).strip('-')}-{what}"
