"""What a person reads on a version's page in MLflow: one plain sentence, the strip, where it came from, what used it."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import quote

MAX_CHARACTERS = 4900
"""MLflow on PostgreSQL refuses a description of more than 5000 characters."""
MAX_CELL_CHARACTERS = 200
"""Of what a person or a guard said; the whole of it stands in the version's tag."""
MAX_SENTENCE_CHARACTERS = 500

TRAINING_VIEW = "workflowType=machine_learning"


class Table(NamedTuple):
    """A table as the tag ``grpo.datasets`` names it; ``rows`` is "" in tags from before they were counted."""

    digest: str
    rows: str


def version_link(name: str, version: str) -> str:
    return f"#/models/{quote(name)}/versions/{version}"


def run_link(experiment: str, run_id: str) -> str:
    return f"#/experiments/{experiment}/runs/{run_id}?{TRAINING_VIEW}"


def search_link(experiment: str, query: str) -> str:
    """The runs that a search finds, as a link: a question that stays true when later runs are added."""
    order = "orderByKey=attributes.run_name&orderByAsc=true"
    return f"#/experiments/{experiment}/runs?searchFilter={quote(query)}&{order}&{TRAINING_VIEW}"


def run_search_link(experiment: str, query: str) -> str:
    """``search_link`` without an order: shorter, for a search that finds one run or few."""
    return f"#/experiments/{experiment}/runs?searchFilter={quote(query)}&{TRAINING_VIEW}"


def tables_of(tag: str) -> dict[str, Table]:
    """The tag ``grpo.datasets`` read back: name -> table."""
    found = {}
    for each in tag.split(","):
        name, _, rest = each.partition(":")
        if rest:
            digest, _, rows = rest.partition(":")
            found[name] = Table(digest, rows)
    return found


def tables_link(tables: Sequence[Table], address: str) -> str:
    """Markdown: "[64 rows](address) `digest`", or how many tables and rows there are."""
    counts = [int(each.rows) for each in tables if each.rows]
    rows = f"{sum(counts)} rows" if len(counts) == len(tables) else "rows"
    if len(tables) > 1:
        return f"[{rows} in {len(tables)} tables]({address})"
    return f"[{rows}]({address}) `{tables[0].digest[:12]}`"


def cell(text: str) -> str:
    """Text of a person, a model or a measurement as one cell of a Markdown table that can not become a link or a tag."""
    cut = text if len(text) <= MAX_CELL_CHARACTERS else f"{text[: MAX_CELL_CHARACTERS - 1]}…"
    plain = escape(" ".join(cut.split()), quote=False)
    for mark in ("\\", "|", "[", "]", "`", "*", "_"):
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def strip_in(description: str) -> str:
    """The strip of a description, "" when it has none."""
    return next((line for line in description.splitlines() if line.startswith("<div>")), "")


def describe(sentence: str, came_from: Mapping[str, str], used_by: str, strip: str = "") -> str:
    """Markdown: the first line stands alone in the table of versions, so it is a plain sentence.

    Args:
        came_from: what -> Markdown of the link to it.
        used_by: address of the search that answers "what used this?".
        strip: HTML of the clickable picture; left out where it alone would fill the page.

    Rows that do not fit are counted in the table's last row.
    """
    sentence = escape(" ".join(sentence.split())[:MAX_SENTENCE_CHARACTERS], quote=False)
    table = "| came from | |\n|---|---|\n"
    foot = f"| **used by** | [runs that used this version]({used_by}) |\n"
    rows = [f"| {what} | {link} |\n" for what, link in came_from.items()]
    more = "| and {} more | see the run |\n"
    head = f"{sentence}\n\n{strip}\n\n{table}" if strip else f"{sentence}\n\n{table}"
    if len(head) + len(foot) + len(more) > MAX_CHARACTERS:
        head = f"{sentence}\n\n{table}"
    kept = len(rows)
    while kept and len(head) + len(foot) + len(more) + sum(map(len, rows[:kept])) > MAX_CHARACTERS:
        kept -= 1
    left_out = more.format(len(rows) - kept) if kept < len(rows) else ""
    return head + "".join(rows[:kept]) + left_out + foot
