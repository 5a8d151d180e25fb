"""A lineage's summary as a terminal table."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def number(value: float | None, form: str = ".3f") -> str:
    """A measured number, "-" for one that was not measured."""
    return "-" if value is None else format(value, form)


def summary_table(summary: dict[str, Any]) -> Table:
    """Per iteration: reward, held-out accuracy and reward-model accuracy before and after, rows, versions, champion."""
    title = f"{summary['lineage']} (recipe {summary['recipe']}): held-out accuracy before→after, reward model (RM) too"
    table = Table(
        title=title,
        title_justify="left",
        caption="labels: new + replayed",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for heading in ("it", "reward", "accuracy", "greedy", "RM acc.", "labels", "policy", "RM"):
        table.add_column(heading, justify="right")
    table.add_column("champ", justify="right")
    table.add_column("s", justify="right")
    table.add_row(
        "0", "-", number(summary["baseline_accuracy"], ".2f"), number(summary["baseline_greedy_accuracy"], ".2f"), "-", "-", "v1", "v1", "", ""
    )  # fmt: skip
    for row in summary["iterations"]:
        refused = row.get("refused_reward_version")
        mark = " (no signal)" if row.get("outcome") == "no_signal" else ""
        table.add_row(
            f"{row['iteration']}{mark}",
            number(row["reward_mean"], ".2f"),
            f"{number(row['accuracy_before'], '.2f')}→{number(row['accuracy_after'], '.2f')}",
            number(row["greedy_accuracy_after"], ".2f"),
            f"{number(row['reward_model_accuracy_before'], '.2f')}→{number(row['reward_model_accuracy_after'], '.2f')}",
            f"{row['num_fresh']}+{row['num_replayed']}",
            f"v{row['policy_version']}",
            f"v{row['reward_version']}" + (f" (v{refused} refused)" if refused else ""),
            f"v{row['champion_version']}",
            f"{row['seconds']:.0f}",
        )
    return table


def where_next(out: Console, root: Path, lineage: str) -> None:
    """Where to look at what a run left."""
    folder = root / lineage
    last = sorted(folder.glob("iteration-*/step-[0-9]*/rewards"))
    lines = [f"igrpo lineage {lineage}", "igrpo ui"]
    if last:
        lines.insert(0, f"igrpo show {last[-1]} --best")
    out.print("look next: " + "   ".join(f"[bold]{line}[/bold]" for line in lines), highlight=False, soft_wrap=True)
    out.print(f"summary: {folder / 'summary.json'}", highlight=False, soft_wrap=True)
