"""Record what a deployment measured outside of an iteration: on the version's page in MLflow and on the run's page in Prefect."""

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from storage import delivery, journal, tables
from storage.refs import DatasetRef, Place
from storage.version_pages import MEASURED
from tasks.chosen_models import Chosen
from tasks.reporting.run_page import iteration_rows
from tasks.show_run import artifact_key


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_measurement(place: Place, chosen: Chosen, evaluation: DatasetRef) -> str:
    """Tag the policy version with what was measured; gives it as a sentence. Repeating it changes nothing."""
    measured = tables.metrics_of(evaluation)
    numbers = [
        f"{label} {measured[name]:.3f}"
        for name, label in (("accuracy", "accuracy"), ("reward_model_mean", "reward model's mean"))
        if name in measured
    ]
    said = ", ".join(numbers) or "nothing could be scored"
    tags = {f"{MEASURED}{chosen.reward.version}": said}
    journal.append(place, "version_tags", {"ref": chosen.record.policy.model_dump(), "tags": tags})
    delivery.deliver(place)
    create_table_artifact(
        table=iteration_rows(chosen.record.metrics, {f"evaluation/{name}": value for name, value in measured.items()}),
        key=artifact_key(place.lineage, "evaluation"),
        description=f"{place.lineage}: policy v{chosen.record.policy.version} scored with reward model v{chosen.reward.version}; "
        "before: in its own iteration",
    )
    return f"policy v{chosen.record.policy.version} with reward model v{chosen.reward.version}: {said}"
