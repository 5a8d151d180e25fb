"""Lineages in the terminal: versions, parents, scores, aliases."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from flows.summary_view import ALARM, alarm_lines, number, summary_table
from storage import decisions, iterations, lineages, registry, summaries
from storage.errors import UnknownLineage
from storage.iterations import IterationRecord
from storage.refs import Role, check_lineage_name


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
    """The summary, then every registered version with what it came from."""
    check_lineage_name(name)
    if name not in lineages.list_lineages(root):
        known = ", ".join(lineages.list_lineages(root)) or "none"
        raise UnknownLineage(f"no lineage {name!r} in {root}; there are: {known}")
    if summary := summaries.read_summary(root, name):
        out.print(summary_table(summary))
        for line in alarm_lines(summary):
            out.print(line, style="bold red", markup=False, highlight=False, soft_wrap=True)
    for decision in decisions.decisions(root, name):
        said = f"after iteration {decision.after_iteration}: {decision.sentence}"
        out.print(said, markup=False, highlight=False, soft_wrap=True)
    records = {record.policy.version: record for record in iterations.records(root, name)}
    roles: tuple[Role, ...] = ("policy", "reward", "critic")
    for role in roles:
        versions = registry.versions(root, name, role)
        if role == "critic" and not versions:
            continue  # only PPO has one
        tree = Tree(f"[bold]{registry.registered_name(name, role)}[/bold]")
        for version in versions:
            aliases = " ".join(f"[green]@{alias}[/green]" for alias in version.aliases)
            score = _measured(records.get(str(version.version))) if role == "policy" else ""
            node = tree.add(f"v{version.version} iteration {version.iteration}{score} {aliases}".rstrip())
            for edge in ("parent", "reference", "reward_model", "critic"):
                if f"grpo.{edge}" in version.tags:
                    node.add(f"[dim]{edge.replace('_', ' ')}: {version.tags[f'grpo.{edge}']}[/dim]")
            if "grpo.refused" in version.tags:
                node.add(f"[red]{version.tags['grpo.refused']}[/red]")
            node.add(f"[dim]digest {version.tags.get('grpo.digest', '?')[:12]}[/dim]")
        out.print(tree, highlight=False)


def _measured(record: IterationRecord | None) -> str:
    """Held-out accuracy beside the reward model's mean and their rank correlation, and the alarm's mark."""
    metrics = {} if record is None else record.metrics
    accuracy, model = metrics.get("evaluation/accuracy"), metrics.get("evaluation/reward_model_mean")
    rank = metrics.get("evaluation/reward_model_rank_correlation")
    mark = f" [bold red]{ALARM}[/bold red]" if record is not None and record.alarm else ""
    return f" accuracy {number(accuracy)} RM mean {number(model)} rank correlation {number(rank)}{mark}"
