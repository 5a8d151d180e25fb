"""MLflow runs: one per iteration, found or made by key, so that a resume goes on with the same run."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from storage.mlflow_client import escaped, of
from storage.refs import DatasetRef, Place

log = logging.getLogger(__name__)

KEY = "grpo.key"
DIGEST_CHARACTERS = 32  # MLflow refuses a digest of more than 36; the whole one stands in the profile
MAX_PARAM_CHARACTERS = 6000


def run_key(place: Place) -> str:
    return f"{place.lineage}/{place.iteration:04d}"


def ensure_experiment(place: Place) -> str:
    """The experiment of the lineage; its artifacts live inside the store."""
    client = of(place)
    found = client.get_experiment_by_name(place.lineage)
    if found is not None:
        return str(found.experiment_id)
    location = (place.lineage_folder / "mlflow").as_uri()
    return str(
        client.create_experiment(place.lineage, artifact_location=location, tags={"grpo.lineage": place.lineage})
    )


def ensure_run(place: Place, *, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
    """The run of this iteration, RUNNING; every other run of the lineage that is still RUNNING becomes KILLED.

    We hold the lineage, so whoever left those is gone. A parameter that the run already has with another value stays as
    it was first recorded: parameters are for people, the recipe of record stands in the store.
    """
    client, experiment = of(place), ensure_experiment(place)
    key = run_key(place)
    query = f"tags.`{KEY}` = '{escaped(key)}'"
    runs = client.search_runs([experiment], query, order_by=["attributes.start_time ASC"])
    if not runs:
        client.create_run(experiment, run_name=name, tags={KEY: key, **tags})
        # Read again: a lost answer makes the client send a creation twice.
        runs = client.search_runs([experiment], query, order_by=["attributes.start_time ASC"])
    run = runs[0]
    for twin in runs[1:]:
        client.delete_run(twin.info.run_id)
    if run.info.status != "RUNNING":
        client.update_run(run.info.run_id, status="RUNNING")
    for other in client.search_runs([experiment], "attributes.status = 'RUNNING'"):
        if other.info.run_id != run.info.run_id:
            client.set_terminated(other.info.run_id, "KILLED")
    _log_params(client, run, params)
    return str(run.info.run_id)


def _log_params(client: Any, run: Any, params: Mapping[str, str]) -> None:
    from mlflow.entities import Param

    new = [
        Param(name, value[:MAX_PARAM_CHARACTERS])
        for name, value in sorted(params.items())
        if name not in run.data.params
    ]
    if new:
        client.log_batch(run.info.run_id, params=new)


def finish_run(place: Place, run_id: str) -> None:
    of(place).set_terminated(run_id, "FINISHED")


def close_runs(place: Place, status: str) -> None:
    """Give every RUNNING run of the lineage ``status``. Called while an error is on its way, so it only warns."""
    try:
        client = of(place)
        experiment = client.get_experiment_by_name(place.lineage)
        if experiment is None:
            return
        for run in client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'"):
            client.set_terminated(run.info.run_id, status)
    except Exception as error:  # noqa: BLE001  # the first error matters, not the bookkeeping's
        log.warning("the MLflow runs of %s could not be marked %s: %s", place.lineage, status, error)


def log_metrics(place: Place, run_id: str, metrics: Mapping[str, float], *, step: int, created_at: str) -> int:
    """Log finite values at ``step`` in one call; gives how many values were left out because they are not finite.

    The time stamp is the stage's own, so that logging the same stage again after a resume changes nothing.
    """
    from mlflow.entities import Metric

    stamp = int(datetime.fromisoformat(created_at).timestamp() * 1000)
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    if finite:
        batch = [Metric(name, float(value), stamp, step) for name, value in sorted(finite.items())]
        of(place).log_batch(run_id, metrics=batch)
    return len(metrics) - len(finite)


def log_dataset(place: Place, run_id: str, ref: DatasetRef, *, context: str, profile: Mapping[str, Any]) -> None:
    """Attach a table to a run by its own digest, with schema and row count from the Parquet footers.

    One dataset can be attached to one run once; a second context for it is ignored by MLflow.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    folder = Path(ref.uri)
    schema = pq.read_schema(next(iter(sorted(folder.glob("*.parquet")))))
    columns = [{"name": field.name, "type": str(field.type), "required": not field.nullable} for field in schema]
    dataset = Dataset(
        name=ref.table.replace("_", "-"),
        digest=ref.digest[:DIGEST_CHARACTERS],
        source_type="local",
        source=json.dumps({"uri": folder.as_uri()}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps({"num_rows": ref.num_rows, "sha256": ref.digest, "path": str(folder), **profile}),
    )
    of(place).log_inputs(run_id, datasets=[DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])


def log_model_inputs(place: Place, run_id: str, model_ids: Sequence[str]) -> None:
    """Attach the logged models that a run read (its parents)."""
    from mlflow.entities import LoggedModelInput

    known = {entry.model_id for entry in of(place).get_run(run_id).inputs.model_inputs}
    new = [LoggedModelInput(model_id) for model_id in dict.fromkeys(model_ids) if model_id not in known]
    if new:
        of(place).log_inputs(run_id, models=new)


def set_note(place: Place, run_id: str, markdown: str) -> None:
    """The run's description, shown on its page."""
    of(place).set_tag(run_id, "mlflow.note.content", markdown)
