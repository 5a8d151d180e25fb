"""Remove weights that nothing needs any more from a lineage that is held."""

from pathlib import Path
from typing import Literal

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from storage import collection, retention
from storage.refs import Place
from storage.store_lock import hold_store
from tasks.show_run import artifact_key


@task(cache_policy=NO_CACHE)
def collect_garbage(place: Place, keep_last: int, action: Literal["plan", "remove"]) -> str:
    """Show on the run's page what goes and what stays, each with its reason; with "remove" it goes. Gives a sentence.

    Raises:
        LineageBusy: another process branches or collects in this store now.
    """
    root = Path(place.root)
    with hold_store(root):
        plan = retention.plan(root, place.lineage, keep_last)
        rows = [{"what": each.name, "bytes": str(each.num_bytes), "why": each.reason} for each in plan.removed]
        rows += [{"what": each.name, "bytes": "stays", "why": "; ".join(each.reasons)} for each in plan.kept]
        if rows:
            said = f"{place.lineage}: what goes, and what stays and why"
            create_table_artifact(table=rows, key=artifact_key(place.lineage, "garbage"), description=said)
        planned = sum(each.num_bytes for each in plan.removed)
        if action == "plan":
            return f"{len(plan.removed)} would go, {planned:,} bytes; action 'remove' does it"
        return f"{len(plan.removed)} removed, {collection.collect(place, plan):,} bytes freed"
