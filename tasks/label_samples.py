"""Turn the iteration's verified completions into preference pairs for the reward model."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Place
from tasks.reward.config import PairsConfig
from tasks.reward.labels import pairs_from_rows


@task(cache_policy=NO_CACHE)
def label_samples(
    place: Place,
    prompts: DatasetRef,
    completions: list[DatasetRef],
    rewards: list[DatasetRef],
    config: PairsConfig,
    source: str,
    seed: int,
) -> DatasetRef:
    """The pairs table: within each group, the completion that the verifier ``source`` prefers is chosen."""
    inputs = {"prompts": prompts.digest}
    for index, (completed, rewarded) in enumerate(zip(completions, rewards, strict=True)):
        inputs[f"completions_{index:03d}"] = completed.digest
        inputs[f"rewards_{index:03d}"] = rewarded.digest
    provenance = Provenance(
        stage="pairs", inputs=inputs, config={**config.model_dump(mode="json"), "source": source}, seed=seed
    )
    if found := tables.find(place, "pairs", provenance):
        return found
    rows, metrics = pairs_from_rows(
        [row for ref in completions for row in tables.read(ref)],
        [row for ref in rewards for row in tables.read(ref)],
        {row["prompt_id"]: row["prompt_key"] for row in tables.read(prompts)},
        config,
        source=source,
        origin_iteration=place.iteration,
        seed=seed,
    )
    return tables.publish(place, "pairs", rows, provenance, metrics=metrics)
