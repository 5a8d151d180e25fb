"""What a person reads on a version's page in MLflow: one plain sentence, where it came from, what used it."""

from collections.abc import Mapping
from urllib.parse import quote

MAX_CHARACTERS = 4900
"""MLflow on PostgreSQL refuses a description of more than 5000 characters."""

TRAINING_VIEW = "workflowType=machine_learning"


def version_link(name: str, version: str) -> str:
    return f"#/models/{quote(name)}/versions/{version}"


def run_link(experiment: str, run_id: str) -> str:
    return f"#/experiments/{experiment}/runs/{run_id}?{TRAINING_VIEW}"


def search_link(experiment: str, query: str) -> str:
    """The runs that a search finds, as a link: a question that stays true when later runs are added."""
    order = "orderByKey=attributes.run_name&orderByAsc=true"
    return f"#/experiments/{experiment}/runs?searchFilter={quote(query)}&{order}&{TRAINING_VIEW}"


def describe(sentence: str, came_from: Mapping[str, str], used_by: str) -> str:
    """Markdown: the first line stands alone in the table of versions, so it is a plain sentence.

    Args:
        came_from: what -> Markdown of the link to it.
        used_by: address of the search that answers "what used this?".

    Rows that do not fit are counted in the table's last row.
    """
    head = f"{sentence}\n\n| came from | |\n|---|---|\n"
    foot = f"| **used by** | [runs that used this version]({used_by}) |\n"
    rows = [f"| {what} | {link} |\n" for what, link in came_from.items()]
    more = "| and {} more | see the run |\n"
    kept = len(rows)
    while kept and len(head) + len(foot) + len(more) + sum(map(len, rows[:kept])) > MAX_CHARACTERS:
        kept -= 1
    left_out = more.format(len(rows) - kept) if kept < len(rows) else ""
    return head + "".join(rows[:kept]) + left_out + foot
