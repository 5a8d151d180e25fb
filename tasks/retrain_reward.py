"""Train the reward model on the iteration's labels mixed with replay, and measure it on held-out prompts before and after."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.checkpoints import TRAINER_FOLDER
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.reward.config import LabelsConfig, RewardTrainingConfig
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import kind_of
from tasks.reward.measures import agreement, judge_rows
from tasks.reward.trainer import RewardTrainer
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.progress import progress


@task(cache_policy=NO_CACHE)
def found_reward_model(
    place: Place,
    training: DatasetRef,
    policy: ModelRef,
    labels: LabelsConfig,
    config: RewardTrainingConfig,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The initial reward model: the policy's backbone and a new scalar head, trained on the initial labels."""
    provenance = Provenance(
        stage="reward",
        inputs={"training": training.digest, "backbone": policy.digest},
        config=config.model_dump(mode="json"),
        seed=seed,
    )
    if found := checkpoints.find(place, "reward", provenance):
        return found
    device = prepare(machine)
    model = RewardModel.from_policy(checkpoints.open_folder(policy), device=device, seed=seed)
    trainer = RewardTrainer(model, config, kind_of(labels))
    with progress("train reward model", "labels") as on_progress:
        metrics = trainer.train(tables.read(training), seed=seed, on_progress=on_progress)
    return _publish(place, trainer, provenance, metrics)


@task(cache_policy=NO_CACHE)
def retrain_reward(
    place: Place,
    training: DatasetRef,
    heldout_labels: DatasetRef,
    reward_model: ModelRef,
    labels: LabelsConfig,
    config: RewardTrainingConfig,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The reward model after this iteration, going on from its last weights and optimiser.

    Metrics hold accuracy and AUC on ``heldout_labels`` (of held-out prompts, never trained on) as
    ``heldout_*_before`` and ``heldout_*_after``.
    """
    provenance = Provenance(
        stage="reward",
        inputs={
            "training": training.digest,
            "heldout_labels": heldout_labels.digest,
            "reward_model": reward_model.digest,
        },
        config=config.model_dump(mode="json"),
        seed=seed,
    )
    if found := checkpoints.find(place, "reward", provenance):
        return found
    device = prepare(machine)
    folder = checkpoints.open_folder(reward_model)
    model = residents.take("reward", reward_model.digest, lambda: RewardModel.load(folder, device=device))
    kind = kind_of(labels)
    trainer = RewardTrainer.load(model, config, kind, folder / TRAINER_FOLDER)
    heldout = tables.read(heldout_labels)
    reading = {"micro_batch_tokens": config.micro_batch_tokens, "max_tokens": config.max_tokens}
    before = agreement(judge_rows(model, heldout, kind, **reading))
    with progress("retrain reward model", "labels") as on_progress:
        metrics = trainer.train(tables.read(training), seed=seed, on_progress=on_progress)
    after = agreement(judge_rows(model, heldout, kind, **reading))
    metrics |= {f"heldout_{name}_before": value for name, value in before.items()}
    metrics |= {f"heldout_{name}_after": value for name, value in after.items()}
    return _publish(place, trainer, provenance, metrics)


def _publish(place: Place, trainer: RewardTrainer, provenance: Provenance, metrics: dict[str, float]) -> ModelRef:
    def write(target: Path) -> None:
        trainer.model.save(target)
        trainer.save(target / TRAINER_FOLDER)

    ref = checkpoints.publish(place, "reward", write, provenance, metrics=metrics)
    residents.keep("reward", ref.digest, trainer.model)
    return ref
