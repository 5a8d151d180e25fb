"""Mix the new labels with a replay of earlier iterations: drawn once, committed before training."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Place
from tasks.reward.config import LabelsConfig, ReplayConfig
from tasks.reward.label_kinds import kind_of
from tasks.reward.replay import mix

TRAINING = "reward_training"
"""The folder, whatever the kind of label."""


@task(cache_policy=NO_CACHE)
def mix_replay(
    place: Place,
    prompts: DatasetRef,
    fresh: DatasetRef,
    history: list[DatasetRef],
    anchor: DatasetRef,
    labels: LabelsConfig,
    config: ReplayConfig,
    seed: int,
) -> DatasetRef:
    """The reward model's training set of this iteration; ``history`` holds the new labels of every earlier iteration.

    No label of a held-out prompt may be there; those of the ``anchor`` set's prompts are left out and counted.
    """
    table = kind_of(labels).mixed_table
    inputs = {"prompts": prompts.digest, "fresh": fresh.digest, "anchor": anchor.digest}
    inputs |= {f"history_{index:04d}": ref.digest for index, ref in enumerate(history)}
    provenance = Provenance(stage=table, inputs=inputs, config=config.model_dump(mode="json"), seed=seed)
    if found := tables.find(place, table, provenance, name=TRAINING):
        return found
    rows, metrics = mix(
        tables.read(fresh),
        [row for ref in history for row in tables.read(ref)],
        config,
        seed=seed,
        heldout_keys={row["prompt_key"] for row in tables.read(prompts) if row["split"] == "heldout"},
        anchor_keys={row["prompt_key"] for row in tables.read(anchor)},
    )
    return tables.publish(place, table, rows, provenance, name=TRAINING, metrics=metrics)
