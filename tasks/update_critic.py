"""The critic of PPO: made from the first policy, then trained on the returns of every step."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.checkpoints import TRAINER_FOLDER
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.grpo.components import CriticConfig
from tasks.grpo.critic import Critic, CriticTrainer
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.progress import progress


@task(cache_policy=NO_CACHE)
def found_critic(place: Place, policy: ModelRef, machine: MachineConfig, seed: int) -> ModelRef:
    """The initial critic: the policy's backbone and a new scalar head."""
    provenance = Provenance(stage="critic", inputs={"backbone": policy.digest}, config={}, seed=seed)
    if found := checkpoints.find(place, "critic", provenance):
        return found
    critic = Critic.from_policy(checkpoints.open_folder(policy), device=prepare(machine), seed=seed)
    ref = checkpoints.publish(place, "critic", critic.save, provenance)
    residents.keep("critic", ref.digest, critic)
    return ref


@task(cache_policy=NO_CACHE)
def update_critic(
    place: Place,
    samples: list[DatasetRef],
    critic: ModelRef,
    config: CriticConfig,
    machine: MachineConfig,
    seed: int,
) -> ModelRef:
    """The critic after this step, with its optimiser state beside the weights in one commit."""
    inputs = {"critic": critic.digest} | {f"samples_{index:03d}": ref.digest for index, ref in enumerate(samples)}
    provenance = Provenance(stage="critic", inputs=inputs, config=config.model_dump(mode="json"), seed=seed)
    if found := checkpoints.find(place, "critic", provenance):
        return found
    device = prepare(machine)
    folder = checkpoints.open_folder(critic)
    model = residents.take("critic", critic.digest, lambda: Critic.load(folder, device=device))
    trainer = CriticTrainer.load(model, config, folder / TRAINER_FOLDER)
    rows = [row for ref in samples for row in tables.read(ref)]
    with progress("update critic", "completions") as on_progress:
        metrics = trainer.train(rows, seed=seed, on_progress=on_progress)

    def write(target: Path) -> None:
        model.save(target)
        trainer.save(target / TRAINER_FOLDER)

    updated = checkpoints.publish(place, "critic", write, provenance, metrics=metrics)
    residents.keep("critic", updated.digest, model)
    return updated
