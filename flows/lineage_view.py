"""Lineages in the terminal: versions, parents, scores, aliases."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.lineage_answers import print_graph
from flows.summary_view import alarm_lines, number, summary_table
from storage import decisions, iterations, lineages, summaries
from storage.errors import UnknownLineage
from storage.refs import check_lineage_name
from tasks.draw_lineage import read_graph


def show_all(out: Console, root: Path) -> None:
    """Every lineage of the store with its newest numbers."""
    names = lineages.list_lineages(root)
    if not names:
        out.print(f"no lineage in {root} yet; start one: [bold]igrpo run quickstart[/bold]", highlight=False)
        return
    table = Table()
    for heading in ("lineage", "recipe", "iterations", "accuracy", "policy", "champion"):
        table.add_column(heading)
    for name in names:
        summary = summaries.read_summary(root, name)
        rows = summary.get("iterations", [])
        table.add_row(
            name,
            str(lineages.read_recipe(root, name)["name"]),
            str(len(rows)),
            number(rows[-1]["accuracy_after"] if rows else summary.get("baseline_accuracy")),
            f"v{rows[-1]['policy_version']}" if rows else "-",
            f"v{rows[-1]['champion_version']}" if rows else "-",
        )
    out.print(table)


def show_lineage(out: Console, root: Path, name: str) -> None:
    """The summary, what was decided by hand, then every version with what it came from."""
    require_lineage(root, name)
    if summary := summaries.read_summary(root, name):
        out.print(summary_table(summary))
        for line in alarm_lines(summary):
            out.print(line, style="bold red", markup=False, highlight=False, soft_wrap=True)
    for decision in decisions.decisions(root, name):
        said = f"after iteration {decision.after_iteration}: {decision.sentence}"
        out.print(said, markup=False, highlight=False, soft_wrap=True)
    if iterations.records(root, name):
        print_graph(out, read_graph(root, name))


def require_lineage(root: Path, name: str) -> None:
    """UnknownLineage, naming those that there are, when the store has no lineage of that name."""
    check_lineage_name(name)
    if name not in lineages.list_lineages(root):
        known = ", ".join(lineages.list_lineages(root)) or "none"
        raise UnknownLineage(f"no lineage {name!r} in {root}; there are: {known}")
