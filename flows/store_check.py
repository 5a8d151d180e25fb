"""`igrpo verify-store`: every committed byte of the store is read and compared with what was committed."""

from pathlib import Path

from rich.console import Console

from storage import lineages
from storage.refs import check_lineage_name
from storage.verification import verify_lineage


def check_store(out: Console, root: Path, lineage: str | None) -> bool:
    """Print a line for everything that is wrong and one of counts per lineage; True when nothing is.

    Raises:
        UnknownLineage: there is none of that name.
    """
    if lineage is not None:
        lineages.require_lineage(root, check_lineage_name(lineage))
    names = [lineage] if lineage is not None else lineages.list_lineages(root)
    num_faults = 0
    for name in names:
        with out.status(f"reading {name}"):
            found = verify_lineage(root, name)
        for fault in found.faults:
            out.print(f"{name}: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
        num_faults += len(found.faults)
        pruned = f", {found.num_pruned} checkpoints without weights (removed on purpose)" if found.num_pruned else ""
        out.print(
            f"{name}: {found.num_manifests} manifests, {found.num_parts} files, {found.num_bytes:,} bytes read{pruned}: "
            f"{'whole' if not found.faults else f'{len(found.faults)} faults'}",
            highlight=False,
            soft_wrap=True,
        )
    out.print(f"{len(names)} lineages in {root}: {num_faults} faults", highlight=False, soft_wrap=True)
    return num_faults == 0
