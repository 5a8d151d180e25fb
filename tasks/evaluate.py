"""Measure a policy on the held-out prompts."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Place
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.tabulate import evaluation_rows


@task(cache_policy=NO_CACHE)
def evaluate(
    place: Place,
    completions: DatasetRef,
    rewards: DatasetRef,
    greedy_rewards: DatasetRef,
    config: EvaluationConfig,
) -> DatasetRef:
    """The evaluation table, one row per held-out prompt; its metrics hold accuracy, pass@k, the reward model's
    mean, and how far verifier and reward model agree. The alarm's settings do not take part."""
    provenance = Provenance(
        stage="evaluation",
        inputs={
            "completions": completions.digest,
            "rewards": rewards.digest,
            "greedy_rewards": greedy_rewards.digest,
        },
        config=config.model_dump(mode="json", exclude={"alarm"}),
    )
    if found := tables.find(place, "evaluation", provenance):
        return found
    rows, metrics = evaluation_rows(
        tables.read(completions), tables.read(rewards), tables.read(greedy_rewards), ks=config.ks
    )
    return tables.publish(place, "evaluation", rows, provenance, metrics=metrics)
