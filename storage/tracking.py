"""MLflow runs: one per iteration, found or made by key, so that a resume goes on with the same run."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from storage.errors import CorruptArtifact, StorageError
from storage.mlflow_client import local_path, of
from storage.refs import DatasetRef, Place

log = logging.getLogger(__name__)

KEY = "grpo.key"
CHANGED_PARAMS = "grpo.changed_params"
DIGEST_CHARACTERS = 32  # MLflow refuses a digest of more than 36; the whole one stands in the profile
MAX_PARAM_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 8000


class ForeignExperiment(StorageError):
    """The tracking server keeps a lineage of this name for another store."""


def run_key(place: Place) -> str:
    return f"{place.lineage}/{place.iteration:04d}"


def ensure_experiment(place: Place) -> str:
    """The experiment of the lineage; its artifacts live inside the store.

    Raises:
        ForeignExperiment: another store records its lineage of this name there (a tracking server that two stores share).
    """
    client, folder = of(place), place.lineage_folder.resolve() / "mlflow"
    found = client.get_experiment_by_name(place.lineage) or _create_experiment(client, place, folder)
    if (recorded := local_path(found.artifact_location)) != folder:
        raise ForeignExperiment(
            f"MLflow's experiment {place.lineage!r} keeps its files in {recorded}, this store in {folder}: "
            "it belongs to something else. Take another lineage name (--lineage NAME), or unset MLFLOW_TRACKING_URI."
        )
    if found.lifecycle_stage == "deleted":
        log.warning("MLflow's experiment %s had been deleted; it is restored", place.lineage)
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _create_experiment(client: Any, place: Place, folder: Path) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        client.create_experiment(place.lineage, folder.as_uri(), tags={"grpo.lineage": place.lineage})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # our own, when the client had to send it twice
            raise
    return client.get_experiment_by_name(place.lineage)


def ensure_run(place: Place, *, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
    """The run of this iteration, RUNNING; every other run of the lineage that is still RUNNING becomes KILLED.

    We hold the lineage, so whoever left those is gone. A parameter that the run already has with another value stays as
    it was first recorded (MLflow refuses to change it), and the newest differing values stand in a tag: parameters are
    for people, the recipe of record stands in the store.
    """
    client, experiment = of(place), ensure_experiment(place)
    key = run_key(place)
    runs = _runs_of(client, experiment, key)
    if not runs:
        client.create_run(experiment, run_name=name, tags={KEY: key, **tags})
        runs = _runs_of(client, experiment, key)  # read again: a lost answer makes the client send a creation twice
    run = runs[0]
    for twin in runs[1:]:
        client.delete_run(twin.info.run_id)
    if run.info.status != "RUNNING":
        client.update_run(run.info.run_id, status="RUNNING")
    reap(place, run.info.run_id)
    _log_params(client, run, params)
    return str(run.info.run_id)


def run_of(place: Place) -> str:
    """The run of this iteration.

    Raises:
        StorageError: it has none.
    """
    runs = _runs_of(of(place), ensure_experiment(place), run_key(place))
    if not runs:
        raise StorageError(f"MLflow has no run of {run_key(place)}; `igrpo repair-lineage` records the lineage anew")
    return str(runs[0].info.run_id)


def _runs_of(client: Any, experiment: str, key: str) -> list[Any]:
    return list(client.search_runs([experiment], f"tags.`{KEY}` = '{key}'", order_by=["attributes.start_time ASC"]))


def _running(client: Any, experiment: str) -> list[str]:
    return [run.info.run_id for run in client.search_runs([experiment], "attributes.status = 'RUNNING'")]


def reap(place: Place, except_run: str) -> int:
    """Mark every other RUNNING run of the lineage KILLED; gives how many. Only under the lineage lock."""
    client = of(place)
    dead = [run for run in _running(client, ensure_experiment(place)) if run != except_run]
    for run in dead:
        client.set_terminated(run, "KILLED")
    return len(dead)


def retire_run(place: Place, why: str) -> None:
    """The unfinished run of an iteration that will begin anew: marked KILLED, its key taken away, ``why`` in a tag."""
    client = of(place)
    for run in _runs_of(client, ensure_experiment(place), run_key(place)):
        client.set_tag(run.info.run_id, KEY, f"{run_key(place)}/retired/{run.info.run_id}")
        client.set_tag(run.info.run_id, "grpo.retired", why[:MAX_TAG_CHARACTERS])
        client.set_terminated(run.info.run_id, "KILLED")


def _log_params(client: Any, run: Any, params: Mapping[str, str]) -> None:
    from mlflow.entities import Param

    storable = {name: value[:MAX_PARAM_CHARACTERS] for name, value in sorted(params.items())}
    recorded = run.data.params
    if new := [Param(name, value) for name, value in storable.items() if name not in recorded]:
        client.log_batch(run.info.run_id, params=new)
    if changed := {name: value for name, value in storable.items() if recorded.get(name, value) != value}:
        client.set_tag(run.info.run_id, CHANGED_PARAMS, json.dumps(changed, ensure_ascii=False)[:MAX_TAG_CHARACTERS])


def finish_run(place: Place, run_id: str, status: str = "FINISHED") -> None:
    of(place).set_terminated(run_id, status)


def close_runs(place: Place, status: str) -> None:
    """Give every RUNNING run of the lineage ``status``; a lineage that MLflow does not know has none."""
    client = of(place)
    experiment = client.get_experiment_by_name(place.lineage)
    if experiment is not None:
        for run in _running(client, experiment.experiment_id):
            client.set_terminated(run, status)


def log_metrics(place: Place, run_id: str, metrics: Mapping[str, float], *, step: int, created_at: str) -> int:
    """Log finite values at ``step`` in one call; gives how many values were left out because they are not finite.

    The time stamp is the stage's own, so that logging the same stage again after a resume changes nothing.
    """
    from mlflow.entities import Metric

    stamp = int(datetime.fromisoformat(created_at).timestamp() * 1000)
    finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
    if finite:
        of(place).log_batch(
            run_id, metrics=[Metric(name, value, stamp, step) for name, value in sorted(finite.items())]
        )
    return len(metrics) - len(finite)


def log_dataset(place: Place, run_id: str, ref: DatasetRef, *, context: str, profile: Mapping[str, Any]) -> None:
    """Attach a table to a run by its own digest, with schema and row count from the Parquet footers.

    One dataset can be attached to one run once; a second context for it is ignored by MLflow. What was recorded first
    for a digest (path, profile) stays.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    folder = Path(ref.uri)
    parts = sorted(folder.glob("*.parquet"))
    if not parts:
        raise CorruptArtifact(f"{folder} holds no Parquet file any more")
    columns = [
        {"name": field.name, "type": str(field.type), "required": not field.nullable}
        for field in pq.read_schema(parts[0])
    ]
    facts = {
        "num_rows": sum(pq.read_metadata(part).num_rows for part in parts),
        "num_files": len(parts),
        "num_bytes": sum(part.stat().st_size for part in parts),
        "sha256": ref.digest,
        **profile,
    }
    dataset = Dataset(
        name=ref.table.replace("_", "-"),
        digest=ref.digest[:DIGEST_CHARACTERS],
        source_type="local",
        source=json.dumps({"uri": folder.as_uri()}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps({name: _readable(value) for name, value in facts.items()}),
    )
    of(place).log_inputs(run_id, datasets=[DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])


def _readable(value: Any) -> Any:
    """NaN and infinity as words: Python writes them into JSON in a form that a browser can not read."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def log_model_inputs(place: Place, run_id: str, model_ids: Sequence[str]) -> None:
    """Attach the logged models that a run read (its parents)."""
    from mlflow.entities import LoggedModelInput

    inputs = of(place).get_run(run_id).inputs
    known = {entry.model_id for entry in inputs.model_inputs} if inputs else set()
    new = [LoggedModelInput(model_id) for model_id in dict.fromkeys(model_ids) if model_id not in known]
    if new:
        of(place).log_inputs(run_id, models=new)


def set_tags(place: Place, run_id: str, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    of(place).log_batch(run_id, tags=[RunTag(name, value) for name, value in sorted(tags.items())])


def set_note(place: Place, run_id: str, markdown: str) -> None:
    """The run's description, shown on its page."""
    of(place).set_tag(run_id, "mlflow.note.content", markdown)


def log_page(place: Place, path: Path) -> None:
    """Show a file on the page of the iteration's run, over the one that is there."""
    of(place).log_artifact(run_of(place), str(path))
