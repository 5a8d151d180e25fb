"""A lineage of finished iterations, made without training: models of a few bytes, one table, a record each."""

from pathlib import Path

import pytest

from storage import checkpoints, iterations, lineages, registry, tables, tracking
from storage.iterations import IterationRecord
from storage.manifest import Provenance

ROW = {
    "prompt_id": "p", "num_samples": 4, "num_scored": 4, "num_correct": 2, "pass_at_1": 0.5, "greedy_correct": True,
    "reward_model_mean": None,
}  # fmt: skip


def model(place, role):
    """A committed checkpoint with a trainer's state."""

    def write(folder):
        (folder / "model.safetensors").write_bytes(f"{place.lineage} {role} {place.iteration}".encode() * 100)
        (folder / "trainer").mkdir()
        (folder / "trainer" / "state.json").write_text("{}")

    provenance = Provenance(stage=role, inputs={})
    return checkpoints.find(place, role, provenance) or checkpoints.publish(place, role, write, provenance)


@pytest.fixture
def finish():
    """finish(place, iteration, **changes): commit an iteration's models, table and record; gives the record.

    Versions are the iteration's number plus one. ``is_registered=True`` registers them in MLflow under the aliases.
    """

    def finish(place, iteration, *, is_registered=False, **changes):
        here = place.at(iteration=iteration)
        root = Path(place.root)
        if iteration == 0:
            lineages.record_recipe(place, {"name": "r", "update": {}, "num_steps": 1})
        provenance = Provenance(stage="evaluation", inputs={})
        evaluation = tables.publish(here, "evaluation", [ROW], provenance)
        labels = tables.publish(here, "pairs", [], Provenance(stage="pairs", inputs={}))
        policy, reward = (
            model(here, role).model_copy(update={"version": str(iteration + 1)}) for role in ("policy", "reward")
        )
        if is_registered:
            run = tracking.ensure_run(here, name=str(iteration), tags={}, params={})
            policy, reward = (
                registry.register(here, ref, run_id=run, tags={}, description="d") for ref in (policy, reward)
            )
            for ref in (policy, reward):
                registry.set_alias(here, ref, "current")
                registry.set_alias(here, ref, "champion")
        earlier = iterations.records(root, place.lineage)
        record = IterationRecord(
            iteration=iteration,
            policy=policy,
            reference=earlier[-1].policy if earlier else policy,
            reward=reward,
            champion=policy,
            tables={"prompts": labels, "labels": labels, "evaluation": evaluation, "champion_evaluation": evaluation},
            metrics={"evaluation/accuracy": 0.5, "reward_mean": 0.25},
            seconds=1.0,
        ).model_copy(update=changes)
        return iterations.publish_record(here, record, reward)

    return finish
