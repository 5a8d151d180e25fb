"""Set the anchor labels aside, once per lineage: the reward model is measured on them and never trained on them."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Place
from tasks.reward.anchor import anchor_rows
from tasks.reward.config import AnchorConfig, LabelsConfig
from tasks.reward.label_kinds import kind_of

ANCHOR = "anchor"
"""The folder, whatever the kind of label."""


@task(cache_policy=NO_CACHE)
def draw_anchor(place: Place, labels: DatasetRef, kind: LabelsConfig, config: AnchorConfig, seed: int) -> DatasetRef:
    """The anchor set, drawn from the initial ``labels`` by hash: whole prompts, at most a fifth of the labels."""
    table = kind_of(kind).table
    provenance = Provenance(
        stage=table, inputs={"labels": labels.digest}, config={"num_rows": config.num_rows}, seed=seed
    )
    if found := tables.find(place, table, provenance, name=ANCHOR):
        return found
    rows = tables.read(labels)
    taken = anchor_rows(rows, config, seed=seed)
    return tables.publish(
        place,
        table,
        taken,
        provenance,
        name=ANCHOR,
        metrics={"num_rows": float(len(taken)), "num_labels": float(len(rows))},
    )
