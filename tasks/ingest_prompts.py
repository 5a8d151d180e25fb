"""Read the task's prompts, split off the held-out ones, and fix both for the life of the lineage."""

from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.curriculum.config import PromptsConfig
from tasks.curriculum.ingest import ingest
from tasks.curriculum.sources import load_prompts
from tasks.policy.loading import load_tokenizer
from tasks.rollout.prompting import encode_prompt


@task(cache_policy=NO_CACHE)
def ingest_prompts(place: Place, config: PromptsConfig, policy: ModelRef, seed: int) -> DatasetRef:
    """The prompts table: de-duplicated, tokenised for ``policy``'s tokenizer, split into train and heldout."""
    provenance = Provenance(
        stage="prompts", inputs={"policy": policy.digest}, config=config.model_dump(mode="json"), seed=seed
    )
    if found := tables.find(place, "prompts", provenance):
        return found
    loaded = load_prompts(config.source, seed=seed)
    encode = partial(encode_prompt, load_tokenizer(checkpoints.open_folder(policy)))
    rows, metrics = ingest(
        loaded.prompts,
        config.format,
        encode,
        num_heldout=config.num_heldout,
        max_prompt_tokens=config.max_prompt_tokens,
    )
    return tables.publish(place, "prompts", rows, provenance, metrics=metrics)
