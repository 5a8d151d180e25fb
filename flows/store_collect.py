"""`igrpo gc`: weights that nothing needs any more, with the reason for everything that stays."""

from pathlib import Path

from rich.console import Console

from storage import collection, lineages, lock, retention
from storage.errors import LineageBusy
from storage.refs import check_lineage_name
from storage.retention import Plan
from storage.store_lock import hold_store


def show_plans(out: Console, root: Path, lineage: str | None, keep_last: int) -> None:
    """Say what ``apply_plans`` would remove now and what it would keep; nothing is changed."""
    total = 0
    for name in _names(root, lineage):
        plan = retention.plan(root, name, keep_last)
        show_plan(out, plan)
        freed = sum(each.num_bytes for each in plan.removed)
        total += freed
        out.print(f"{name}: {len(plan.removed)} would go, {freed:,} bytes", highlight=False)
        try:
            lock.probe(root, name)
        except LineageBusy as error:
            out.print(f"{name}: would be left alone now: {error}", style="yellow", highlight=False, soft_wrap=True)
    out.print(f"{total:,} bytes would be freed; nothing was removed, --apply does it", highlight=False)


def apply_plans(out: Console, root: Path, lineage: str | None, keep_last: int) -> None:
    """Remove what each lineage's plan names, one lineage at a time and never one that a run holds."""
    freed = 0
    with hold_store(root):
        for name in _names(root, lineage):
            try:
                with lock.hold(root, name) as place:
                    plan = retention.plan(root, name, keep_last)
                    show_plan(out, plan)
                    removed = collection.collect(place, plan)
            except LineageBusy as error:
                out.print(f"{name}: left alone: {error}", style="yellow", highlight=False, soft_wrap=True)
                continue
            freed += removed
            out.print(f"{name}: {len(plan.removed)} removed, {removed:,} bytes freed", highlight=False)
    out.print(f"{freed:,} bytes freed", highlight=False)


def show_plan(out: Console, plan: Plan) -> None:
    """A line for everything that stays and everything that goes."""
    for each in plan.kept:
        out.print(f"  keep   {each.name}: {'; '.join(each.reasons)}", markup=False, highlight=False, soft_wrap=True)
    for gone in plan.removed:
        line = f"  remove {gone.name}: {gone.num_bytes:,} bytes, {gone.reason}"
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _names(root: Path, lineage: str | None) -> list[str]:
    if lineage is None:
        return lineages.list_lineages(root)
    lineages.require_lineage(root, check_lineage_name(lineage))
    return [lineage]
