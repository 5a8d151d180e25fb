"""Turn scored completions into training samples with advantages."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Place
from tasks.grpo.config import AdvantageConfig
from tasks.grpo.samples import build_samples as advantages_of


@task(cache_policy=NO_CACHE)
def build_samples(place: Place, completions: DatasetRef, rewards: DatasetRef, config: AdvantageConfig) -> DatasetRef:
    """The samples table: group-relative advantages by ``group_id``."""
    provenance = Provenance(
        stage="samples",
        inputs={"completions": completions.digest, "rewards": rewards.digest},
        config=config.model_dump(mode="json"),
    )
    if found := tables.find(place, "samples", provenance):
        return found
    rows, metrics = advantages_of(tables.read(completions), tables.read(rewards), config)
    return tables.publish(place, "samples", rows, provenance, metrics=metrics)
