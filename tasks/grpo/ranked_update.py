"""A policy update as a program for ranks: what it is handed by file, and what it leaves."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from tasks.grpo.config import UpdateConfig
from tasks.grpo.sharded import Ranks, whole_weights
from tasks.grpo.trainer import PolicyTrainer
from tasks.policy.loading import load_model, load_tokenizer, save_model
from tasks.runtime.config import MachineConfig
from tasks.runtime.process_group import joined
from tasks.runtime.rank_files import PROGRESS_FILE
from tasks.values.frozen import Frozen

MODULE = "tasks.grpo.ranked_update"
JOB_FILE = "job.json"
ROWS_FILE = "rows.jsonl"
METRICS_FILE = "metrics.json"

Row = Mapping[str, Any]


class UpdateJob(Frozen):
    """One update. Folders are local paths: ``policy`` and ``trainer`` (which need not exist) hold the state before it,
    ``updated`` and ``updated_trainer`` take the one after it; ``reference`` as ``PolicyTrainer.update`` wants it."""

    policy: str
    trainer: str
    reference: str | None
    updated: str
    updated_trainer: str
    config: UpdateConfig
    machine: MachineConfig
    max_new_tokens: int
    seed: int


def write_job(folder: Path, job: UpdateJob, rows: Sequence[Row]) -> None:
    """Put the job and its rows (lists, numbers, strings, None) where ``run`` finds them.

    Python's JSON gives every float back to the last bit, NaN and infinities too.
    """
    (folder / JOB_FILE).write_text(job.model_dump_json())
    with (folder / ROWS_FILE).open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def read_metrics(folder: Path) -> dict[str, float]:
    """The update's metrics, as ``PolicyTrainer.update`` gives them."""
    return {name: float(value) for name, value in json.loads((folder / METRICS_FILE).read_text()).items()}


def run(folder: Path) -> None:
    """This rank's part of the job in ``folder``; the first rank writes what comes of it."""
    job = UpdateJob.model_validate_json((folder / JOB_FILE).read_text())
    with (folder / ROWS_FILE).open() as file:
        rows = [json.loads(line) for line in file]
    with joined(job.machine) as (mesh, device):
        ranks = Ranks(mesh)
        model = load_model(Path(job.policy), device=device)
        reference = _reference(job, model, device)
        trainer = PolicyTrainer.load(model, job.config, Path(job.trainer), job.machine, ranks)

        def on_progress(done: int, total: int) -> None:
            if ranks.rank == 0:
                (folder / PROGRESS_FILE).write_text(f"{done} {total}\n")

        metrics = trainer.update(
            rows, reference=reference, max_new_tokens=job.max_new_tokens, seed=job.seed, on_progress=on_progress
        )
        weights = whole_weights(model)
        if ranks.rank == 0:
            save_model(model, load_tokenizer(Path(job.policy)), Path(job.updated), weights=weights)
        trainer.save(Path(job.updated_trainer))
        if ranks.rank == 0:
            (folder / METRICS_FILE).write_text(json.dumps(metrics))


def _reference(job: UpdateJob, model: PreTrainedModel, device: str) -> PreTrainedModel | None:
    """The policy itself where it has not moved since the iteration began: no second model is then held."""
    if job.reference is None or job.reference == job.policy:
        return None if job.reference is None else model
    return load_model(Path(job.reference), device=device)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
