"""Rows of a table, readable in a terminal: completions beside their rewards, Korean and other wide text too."""

from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from storage import tables
from storage.errors import CorruptArtifact
from tasks.evaluation.agreement import disagreement, disagreements

Order = Literal["stored", "best", "worst", "disagree"]
Row = dict[str, Any]
MAX_CHARACTERS = 1500
HIDDEN_SUFFIXES = ("_ids", "_logprobs", "_key", "_digest")


def show_table(out: Console, path: Path, *, order: Order, num: int) -> None:
    """Print up to ``num`` rows of the table in ``path``.

    A rewards table is joined with the completions beside it, and completions with their rewards, by group id and sample
    index. The digest is checked on reading.
    """
    ref = tables.ref_at(path)
    rows = tables.read(ref)
    if ref.table in ("completions", "rewards"):
        rows = _joined(path, ref.table, rows)
    rows = _ordered(rows, order, path)
    out.print(f"[bold]{ref.table}[/bold] {ref.num_rows} rows, digest {ref.digest[:12]}", highlight=False)
    for row in rows[:num]:
        out.print(_panel(row, order))
    if len(rows) > num:
        out.print(f"[dim]{len(rows) - num} more rows; --num N shows more[/dim]")


def _ordered(rows: list[Row], order: Order, path: Path) -> list[Row]:
    """The rows that can be ordered so: with a reward, or with a verdict and the reward model's probability."""
    if order == "stored":
        return rows
    needed = {"is_correct", "reward_model_reward"} if order == "disagree" else {"reward"}
    if not rows or not needed <= rows[0].keys():
        raise CorruptArtifact(f"{path} has no rewards to order by; leave out --{order}")
    if order == "disagree":
        return [dict(row) for row in disagreements(rows)]
    scored = [row for row in rows if row["reward"] is not None]
    return sorted(scored, key=lambda row: float(row["reward"]), reverse=order == "best")


def _joined(path: Path, table: str, rows: list[Row]) -> list[Row]:
    beside = path.parent / ("rewards" if table == "completions" else "completions")
    if not (beside / "manifest.json").is_file():
        return rows
    others = {(row["group_id"], row["sample_index"]): row for row in tables.read(tables.ref_at(beside))}
    prompts: dict[str, str] = {}
    if (path.parent / "selection" / "manifest.json").is_file():
        selection = tables.read(tables.ref_at(path.parent / "selection"))
        prompts = {row["group_id"]: row["prompt"] for row in selection}
    joined = []
    for row in rows:
        other = others.get((row["group_id"], row["sample_index"]), {})
        joined.append({"prompt": prompts.get(row["group_id"], ""), **other, **row})
    return joined


def _panel(row: Row, order: Order) -> Panel:
    """Text as it is (no markup is read out of it), numbers in the title."""
    body = Text()
    for name in ("prompt", "text"):
        if row.get(name):
            body.append(f"{name}\n", style="bold cyan")
            body.append(f"{_short(str(row[name]))}\n")
    details = {
        name: value
        for name, value in row.items()
        if value is not None
        and name not in ("prompt", "text", "reward", "metadata")
        and not name.endswith(HIDDEN_SUFFIXES)
    }
    body.append(" ".join(f"{name}={_value(value)}" for name, value in details.items()), style="dim")
    title = Text(f"reward {_value(row['reward'])}" if row.get("reward") is not None else "")
    if order == "disagree":
        verdict = "right" if row["is_correct"] else "wrong"
        title = Text(
            f"verifier: {verdict}, reward model: {row['reward_model_reward']:.3f}, apart by {disagreement(row):.3f}"
        )
    return Panel(body, title=title, title_align="left")


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} … ({len(text)} characters)"


def _value(value: Any) -> str:
    return format(value, ".4g") if isinstance(value, float) else _short(str(value))
