"""One step of the policy: mu epochs of the objective on the step's samples."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.checkpoints import ADAPTER_FOLDER, TRAINER_FOLDER
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.grpo.config import UpdateConfig
from tasks.grpo.ranked_update import MODULE as RANKED_UPDATE
from tasks.grpo.ranked_update import UpdateJob, read_metrics, write_job
from tasks.grpo.trainer import PolicyTrainer
from tasks.policy.loading import load_model, load_tokenizer, save_model
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.launching import run_in_ranks
from tasks.runtime.progress import progress


@task(cache_policy=NO_CACHE)
def update_policy(
    place: Place,
    samples: list[DatasetRef],
    policy: ModelRef,
    reference: ModelRef,
    config: UpdateConfig,
    max_new_tokens: int,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The policy after this step, with its optimiser state beside the weights in one commit.

    The reference is part of the provenance: a resume can not fall back to another one.

    Args:
        samples: the step's samples, a table per round.
        max_new_tokens: the longest completion that sampling allows.
    """
    inputs = {"policy": policy.digest, "reference": reference.digest}
    inputs |= {f"samples_{index:03d}": ref.digest for index, ref in enumerate(samples)}
    settings = config.model_dump(mode="json") | {"max_new_tokens": max_new_tokens}
    provenance = Provenance(stage="policy", inputs=inputs, config=settings, seed=seed)
    if found := checkpoints.find(place, "policy", provenance):
        return found
    rows = [row for ref in samples for row in tables.read(ref)]
    update = _update_here if machine.num_processes == 1 else _update_in_ranks
    return update(place, provenance, rows, policy, reference, config, max_new_tokens, machine, seed)


def _update_here(
    place: Place,
    provenance: Provenance,
    rows: list[dict[str, Any]],
    policy: ModelRef,
    reference: ModelRef,
    config: UpdateConfig,
    max_new_tokens: int,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """In this process, with the models that are in its memory."""
    device = prepare(machine)
    is_start = policy.digest == reference.digest
    if config.lora is not None and is_start:
        residents.drop("trainer")  # it trains the adapter that is part of this policy; a new one begins
    trainer = residents.take(
        "trainer", policy.digest, lambda: _trainer(policy, reference, config, machine, device, seed)
    )
    residents.drop("policy")
    frozen = None
    if config.kl_in_loss and (is_start or trainer.adapter is not None):
        frozen = trainer.model if is_start or trainer.adapter is None else trainer.adapter.base()
    elif config.kl_in_loss:
        reference_folder = checkpoints.open_folder(reference)
        frozen = residents.get("reference", reference.digest, lambda: load_model(reference_folder, device=device))
    with progress("update policy", "completions") as on_progress:
        metrics = trainer.update(
            rows, reference=frozen, max_new_tokens=max_new_tokens, seed=seed, on_progress=on_progress
        )

    tokenizer = residents.get("tokenizer", policy.digest, lambda: load_tokenizer(checkpoints.open_folder(policy)))

    def write(target: Path) -> None:
        save_model(trainer.policy(), tokenizer, target)
        trainer.save(target / TRAINER_FOLDER)
        if trainer.adapter is not None:
            trainer.adapter.save(target / ADAPTER_FOLDER)

    updated = checkpoints.publish(place, "policy", write, provenance, metrics=metrics)
    if trainer.adapter is None:  # else the others load the sums as they were written
        residents.keep("policy", updated.digest, trainer.model)
    residents.keep("trainer", updated.digest, trainer)
    residents.keep("tokenizer", updated.digest, tokenizer)
    return updated


def _trainer(
    policy: ModelRef, reference: ModelRef, config: UpdateConfig, machine: MachineConfig, device: str, seed: int
) -> PolicyTrainer:
    """The trainer as the policy's checkpoint left it. An adapter stands on the policy at the iteration's start, which is the
    reference, and begins anew with each iteration."""
    folder = checkpoints.open_folder(policy)
    if config.lora is None:
        model = residents.get("policy", policy.digest, lambda: load_model(folder, device=device))
        return PolicyTrainer.load(model, config, folder / TRAINER_FOLDER, machine)
    base = load_model(checkpoints.open_folder(reference), device=device)
    saved = None if policy.digest == reference.digest else (folder / ADAPTER_FOLDER, folder / TRAINER_FOLDER)
    return PolicyTrainer.load_with_adapter(base, config, saved, machine, base_digest=reference.digest, seed=seed)


def _update_in_ranks(
    place: Place,
    provenance: Provenance,
    rows: list[dict[str, Any]],
    policy: ModelRef,
    reference: ModelRef,
    config: UpdateConfig,
    max_new_tokens: int,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """In processes of their own, which read the checkpoints and write the next one."""
    folder = checkpoints.open_folder(policy)
    reference_folder = str(checkpoints.open_folder(reference)) if config.kl_in_loss else None
    for slot in ("trainer", "policy", "reference"):
        residents.drop(slot)  # the ranks hold the models now; two of each may not fit
    metrics: dict[str, float] = {}

    def write(target: Path) -> None:
        job = UpdateJob(
            policy=str(folder),
            trainer=str(folder / TRAINER_FOLDER),
            reference=reference_folder,
            updated=str(target),
            updated_trainer=str(target / TRAINER_FOLDER),
            config=config,
            machine=machine,
            max_new_tokens=max_new_tokens,
            seed=seed,
        )
        with TemporaryDirectory() as handed_over, progress("update policy", "completions") as on_progress:
            write_job(Path(handed_over), job, rows)
            run_in_ranks(
                RANKED_UPDATE,
                Path(handed_over),
                place.folder("ranks.log"),
                num_processes=machine.num_processes,
                num_threads=machine.num_threads,
                on_progress=on_progress,
            )
            metrics.update(read_metrics(Path(handed_over)))

    return checkpoints.publish(place, "policy", write, provenance, metrics=metrics)
