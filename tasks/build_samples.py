"""Turn scored completions into training samples with advantages."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.grpo.config import UpdateConfig
from tasks.grpo.critic import Critic
from tasks.grpo.samples import Models
from tasks.grpo.samples import build_samples as samples_of
from tasks.policy.loading import load_model
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare


@task(cache_policy=NO_CACHE)
def build_samples(
    place: Place,
    completions: DatasetRef,
    rewards: DatasetRef,
    policy: ModelRef,
    reference: ModelRef,
    critic: ModelRef | None,
    config: UpdateConfig,
    weights: dict[str, float],
    max_new_tokens: int,
    machine: MachineConfig,
) -> DatasetRef:
    """The samples table. The reference is asked only for a KL in the reward, the critic only when there is one.

    Args:
        policy: that sampled the completions.
        weights: of the reward sources that count.
        max_new_tokens: the longest completion that sampling allows.
    """
    inputs = {"completions": completions.digest, "rewards": rewards.digest}
    if config.kl.placement == "reward":
        inputs |= {"policy": policy.digest, "reference": reference.digest}
    if critic is not None:
        inputs["critic"] = critic.digest
    settings = config.sample_settings() | {"weights": weights, "max_new_tokens": max_new_tokens}
    provenance = Provenance(stage="samples", inputs=inputs, config=settings)
    if found := tables.find(place, "samples", provenance):
        return found
    models = Models(critic=None if critic is None else open_critic(critic, machine))
    if config.kl.placement == "reward":
        device = prepare(machine)
        folders = {ref.digest: checkpoints.open_folder(ref) for ref in (policy, reference)}
        models = Models(
            policy=residents.get("policy", policy.digest, lambda: load_model(folders[policy.digest], device=device)),
            reference=residents.get(
                "reference", reference.digest, lambda: load_model(folders[reference.digest], device=device)
            ),
            critic=models.critic,
        )
    rows, metrics = samples_of(
        tables.read(completions),
        tables.read(rewards),
        config,
        weights=weights,
        max_new_tokens=max_new_tokens,
        models=models,
    )
    return tables.publish(place, "samples", rows, provenance, metrics=metrics)


def open_critic(critic: ModelRef, machine: MachineConfig) -> Critic:
    """The resident critic, loaded when it is not there."""
    folder = checkpoints.open_folder(critic)
    device = prepare(machine)
    return residents.get("critic", critic.digest, lambda: Critic.load(folder, device=device))


@task(cache_policy=NO_CACHE)
def num_missing_groups(samples: list[DatasetRef], wanted: int) -> int:
    """How many groups with signal a step still lacks."""
    found = sum(int(tables.metrics_of(each)["num_signal_groups"]) for each in samples)
    return max(0, wanted - found)
