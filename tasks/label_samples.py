"""Turn the iteration's verified completions into labels for the reward model."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Place
from tasks.reward.config import LabelsConfig
from tasks.reward.label_kinds import kind_of


@task(cache_policy=NO_CACHE)
def label_samples(
    place: Place,
    prompts: DatasetRef,
    completions: list[DatasetRef],
    rewards: list[DatasetRef],
    config: LabelsConfig,
    source: str,
    seed: int,
) -> DatasetRef:
    """The labels table of ``config``'s kind: what the verifier ``source`` says of the completions of each group."""
    kind = kind_of(config)
    assert kind.from_rows is not None, "steps are labelled by label_steps"
    inputs = {"prompts": prompts.digest}
    for index, (completed, rewarded) in enumerate(zip(completions, rewards, strict=True)):
        inputs[f"completions_{index:03d}"] = completed.digest
        inputs[f"rewards_{index:03d}"] = rewarded.digest
    provenance = Provenance(
        stage=kind.table, inputs=inputs, config={**config.model_dump(mode="json"), "source": source}, seed=seed
    )
    if found := tables.find(place, kind.table, provenance):
        return found
    rows, metrics = kind.from_rows(
        [row for ref in completions for row in tables.read(ref)],
        [row for ref in rewards for row in tables.read(ref)],
        {row["prompt_id"]: row["prompt_key"] for row in tables.read(prompts)},
        config,
        source=source,
        origin_iteration=place.iteration,
        seed=seed,
    )
    return tables.publish(place, kind.table, rows, provenance, metrics=metrics)
