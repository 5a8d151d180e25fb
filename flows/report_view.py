"""The report of an iteration, written anew from the command line."""

from pathlib import Path

from rich.console import Console

from storage import lineages
from storage.refs import check_lineage_name
from tasks.write_report import make_report


def show_report(out: Console, root: Path, lineage: str, iteration: int | None) -> None:
    """Write the report and print its path, alone on its line, so that a shell can take it."""
    check_lineage_name(lineage)
    lineages.read_recipe(root, lineage)  # names the lineages that there are
    out.print(str(make_report(root, lineage, iteration)), markup=False, highlight=False, soft_wrap=True)
