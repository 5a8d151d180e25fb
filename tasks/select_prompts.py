"""Choose which prompts come next."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Place
from tasks.curriculum.selection import select, select_heldout
from tasks.curriculum.selection import select_replacements as replacements_of


@task(cache_policy=NO_CACHE)
def select_prompts(place: Place, prompts: DatasetRef, num_prompts: int, step_index: int, seed: int) -> DatasetRef:
    """The training prompts of one step; ``step_index`` counts steps over the whole lineage, so epochs go on."""
    provenance = Provenance(
        stage="selection",
        inputs={"prompts": prompts.digest},
        config={"num_prompts": num_prompts, "step_index": step_index},
        seed=seed,
    )
    if found := tables.find(place, "selection", provenance):
        return found
    rows = select(tables.read(prompts), num_prompts=num_prompts, seed=seed, step_index=step_index)
    return tables.publish(place, "selection", rows, provenance)


@task(cache_policy=NO_CACHE)
def select_replacements(
    place: Place,
    prompts: DatasetRef,
    taken: list[DatasetRef],
    num_prompts: int,
    step_index: int,
    round_number: int,
    seed: int,
) -> DatasetRef:
    """Prompts in place of those whose groups gave no signal; ``taken`` are the step's earlier selections."""
    inputs = {"prompts": prompts.digest} | {f"taken_{index:03d}": ref.digest for index, ref in enumerate(taken)}
    config = {"num_prompts": num_prompts, "step_index": step_index, "round": round_number}
    provenance = Provenance(stage="selection", inputs=inputs, config=config, seed=seed)
    if found := tables.find(place, "selection", provenance):
        return found
    rows = replacements_of(
        tables.read(prompts),
        [row for ref in taken for row in tables.read(ref)],
        num_prompts=num_prompts,
        seed=seed,
        step_index=step_index,
        round_number=round_number,
    )
    return tables.publish(place, "selection", rows, provenance)


@task(cache_policy=NO_CACHE)
def select_heldout_prompts(place: Place, prompts: DatasetRef) -> DatasetRef:
    """All held-out prompts, one group each."""
    provenance = Provenance(stage="selection", inputs={"prompts": prompts.digest}, config={"split": "heldout"})
    if found := tables.find(place, "selection", provenance):
        return found
    return tables.publish(place, "selection", select_heldout(tables.read(prompts)), provenance)
