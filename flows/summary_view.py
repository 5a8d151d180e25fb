"""A lineage's summary as a terminal table."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ALARM = "⚠"


def number(value: float | None, form: str = ".3f") -> str:
    """A measured number, "-" for one that was not measured."""
    return "-" if value is None else format(value, form)


def summary_table(summary: dict[str, Any]) -> Table:
    """Per iteration: reward, held-out accuracy beside the reward model's mean, reward-model accuracy, rows, versions, champion."""
    title = f"{summary['lineage']} (recipe {summary['recipe']}): held-out accuracy before→after, reward model (RM) too"
    table = Table(
        title=title,
        title_justify="left",
        caption=f"RM mean: of the held-out completions; labels: new + replayed; {ALARM} over-optimisation",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for heading in ("it", "reward", "accuracy", "RM\nmean", "greedy", "RM acc.", "labels", "pol.", "RM"):
        table.add_column(heading, justify="right")
    table.add_column("champ", justify="right")
    table.add_column("s", justify="right")
    table.add_row(
        "0",
        "-",
        number(summary["baseline_accuracy"], ".2f"),
        number(summary.get("baseline_reward_model_mean"), ".2f"),
        number(summary["baseline_greedy_accuracy"], ".2f"),
        *("-", "-", "v1", "v1", "", ""),
    )
    for row in summary["iterations"]:
        refused = row.get("refused_reward_version")
        mark = f" {ALARM}" if row.get("alarm") else ""
        mark += " (rolled back)" if row.get("rolled_back_to_version") is not None else ""
        mark += " (no signal)" if row.get("outcome") == "no_signal" else ""
        table.add_row(
            f"{row['iteration']}{mark}",
            number(row["reward_mean"], ".2f"),
            f"{number(row['accuracy_before'], '.2f')}→{number(row['accuracy_after'], '.2f')}",
            number(row.get("reward_model_mean_after"), ".2f"),
            number(row["greedy_accuracy_after"], ".2f"),
            f"{number(row['reward_model_accuracy_before'], '.2f')}→{number(row['reward_model_accuracy_after'], '.2f')}",
            f"{row['num_fresh']}+{row['num_replayed']}",
            f"v{row['policy_version']}",
            f"v{row['reward_version']}" + (f" (v{refused} refused)" if refused else ""),
            f"v{row['champion_version']}",
            f"{row['seconds']:.0f}",
        )
    return table


def alarm_lines(summary: dict[str, Any]) -> list[str]:
    """What needs a person's eye after the newest iteration: the over-optimisation alarm while it stands, the guards passed,
    and where the lineage was rolled back to."""
    rows = summary.get("iterations", [])
    if not rows:
        return []
    said = ([rows[-1]["alarm"]] if rows[-1].get("alarm") else []) + rows[-1].get("guards", [])
    if (version := rows[-1].get("rolled_back_to_version")) is not None:
        said.append(f"rolled back: the next iteration starts from policy v{version}")
    return [f"{ALARM} {line}" for line in said]


def where_next(out: Console, root: Path, lineage: str) -> None:
    """Where to look at what a run left."""
    folder = root / lineage
    last = sorted(folder.glob("iteration-*/step-[0-9]*/rewards"))
    lines = [f"igrpo lineage {lineage}", "igrpo ui"]
    if last:
        lines.insert(0, f"igrpo show {last[-1]} --best")
    out.print("look next: " + "   ".join(f"[bold]{line}[/bold]" for line in lines), highlight=False, soft_wrap=True)
    out.print(f"summary: {folder / 'summary.json'}", highlight=False, soft_wrap=True)
