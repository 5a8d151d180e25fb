"""Train the reward model on the iteration's pairs mixed with replay, and measure it on held-out prompts before and after."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.checkpoints import TRAINER_FOLDER
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.reward.config import RewardTrainingConfig
from tasks.reward.head import RewardModel
from tasks.reward.scorer import pair_metrics
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
    config: RewardTrainingConfig,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The initial reward model: the policy's backbone and a new scalar head, trained on the initial pairs."""
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
    trainer = RewardTrainer(model, config)
    with progress("train reward model", "pairs") as on_progress:
        metrics = trainer.train(tables.read(training), seed=seed, on_progress=on_progress)
    return _publish(place, trainer, provenance, metrics)


@task(cache_policy=NO_CACHE)
def retrain_reward(
    place: Place,
    training: DatasetRef,
    heldout_pairs: DatasetRef,
    reward_model: ModelRef,
    config: RewardTrainingConfig,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The reward model after this iteration, going on from its last weights and optimiser.

    Metrics hold accuracy and AUC on ``heldout_pairs`` (pairs of held-out prompts, never trained on) as
    ``heldout_*_before`` and ``heldout_*_after``.
    """
    provenance = Provenance(
        stage="reward",
        inputs={
            "training": training.digest,
            "heldout_pairs": heldout_pairs.digest,
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
    trainer = RewardTrainer.load(model, config, folder / TRAINER_FOLDER)
    pairs = tables.read(heldout_pairs)
    before = pair_metrics(model, pairs, micro_batch_tokens=config.micro_batch_tokens, max_tokens=config.max_tokens)
    with progress("retrain reward model", "pairs") as on_progress:
        metrics = trainer.train(tables.read(training), seed=seed, on_progress=on_progress)
    after = pair_metrics(model, pairs, micro_batch_tokens=config.micro_batch_tokens, max_tokens=config.max_tokens)
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
