"""Train the reward model on the iteration's labels mixed with replay, and measure it before and after."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.checkpoints import TRAINER_FOLDER
from storage.manifest import Json, Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.reward import retraining
from tasks.reward.config import RewardModelConfig
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import kind_of
from tasks.reward.trainer import RewardTrainer
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.progress import progress


@task(cache_policy=NO_CACHE)
def found_reward_model(
    place: Place,
    training: DatasetRef,
    anchor: DatasetRef,
    policy: ModelRef,
    config: RewardModelConfig,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The initial reward model: the policy's backbone and a new scalar head, trained on the initial labels."""
    provenance = Provenance(
        stage="reward",
        inputs={"training": training.digest, "anchor": anchor.digest, "backbone": policy.digest},
        config=_settings(config),
        seed=seed,
    )
    if found := checkpoints.find(place, "reward", provenance):
        return found
    device = prepare(machine)
    model = RewardModel.from_policy(checkpoints.open_folder(policy), device=device, seed=seed)
    trainer = RewardTrainer(model, config.training, kind_of(config.labels))
    with progress("train reward model", "labels") as on_progress:
        metrics = retraining.found(
            trainer, tables.read(training), tables.read(anchor), config, seed=seed, on_progress=on_progress
        )
    return _publish(place, trainer, provenance, metrics)


@task(cache_policy=NO_CACHE)
def retrain_reward(
    place: Place,
    training: DatasetRef,
    heldout_labels: DatasetRef,
    anchor: DatasetRef,
    reward_model: ModelRef,
    config: RewardModelConfig,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The candidate of this iteration, going on from the last good reward model; its metrics say whether it is refused.

    ``heldout_labels`` are of held-out prompts, ``anchor`` holds the oldest labels; neither is ever trained on.
    """
    provenance = Provenance(
        stage="reward",
        inputs={
            "training": training.digest,
            "heldout_labels": heldout_labels.digest,
            "anchor": anchor.digest,
            "reward_model": reward_model.digest,
        },
        config=_settings(config),
        seed=seed,
    )
    if found := checkpoints.find(place, "reward", provenance):
        return found
    device = prepare(machine)
    folder = checkpoints.open_folder(reward_model)
    model = residents.take("reward", reward_model.digest, lambda: RewardModel.load(folder, device=device))
    trainer = RewardTrainer(model, config.training, kind_of(config.labels))
    if config.optimiser_state == "continue":
        trainer.optimiser.load(folder / TRAINER_FOLDER)
    with progress("retrain reward model", "labels") as on_progress:
        metrics = retraining.retrain(
            trainer,
            tables.read(training),
            tables.read(heldout_labels),
            tables.read(anchor),
            config,
            seed=seed,
            on_progress=on_progress,
        )
    return _publish(place, trainer, provenance, metrics)


def _settings(config: RewardModelConfig) -> Json:
    """What a training reads of the settings; the rest made its inputs."""
    return config.model_dump(mode="json", include={"labels", "training", "optimiser_state", "anchor", "calibration"})


def _publish(place: Place, trainer: RewardTrainer, provenance: Provenance, metrics: dict[str, float]) -> ModelRef:
    def write(target: Path) -> None:
        trainer.model.save(target)
        trainer.save(target / TRAINER_FOLDER)

    ref = checkpoints.publish(place, "reward", write, provenance, metrics=metrics)
    residents.keep("reward", ref.digest, trainer.model)
    return ref
