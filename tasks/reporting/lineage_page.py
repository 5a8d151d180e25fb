"""The whole ancestry of a lineage as one HTML file: zoomed without a script, every box a link, everything escaped."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from tasks.ancestry.graph import Graph, Node
from tasks.reporting.drawing import BOX_HEIGHT, BOX_WIDTH, anchor_of, drawing_of
from tasks.reporting.visible import visible

FOLDER = Path(__file__).parent
TEMPLATE = "lineage.html"
STYLE = "lineage.css"
ZOOMS = (25, 50, 100, 200)
"""Per cent of the picture's own size; the middle one that shows most is chosen first."""
FIRST_ZOOM = 50


@dataclass(frozen=True)
class Entry:
    """A node's paragraph: its links by name, and the edges on both sides as links within the page."""

    node: Node
    anchor: str
    links: Sequence[tuple[str, str]]
    came_from: Sequence[tuple[str, str, str]]
    """(relation, anchor, label)."""
    went_into: Sequence[tuple[str, str, str]]


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    return environment.get_template(TEMPLATE)


def render_lineage(graph: Graph, links: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """The page. What people and models wrote is untrusted: every value is escaped, and the page's policy refuses scripts.

    Args:
        links: id of a node -> (name, address) of what it can be looked at with: its report, its folder, its MLflow page.
    """
    style = (FOLDER / STYLE).read_text(encoding="utf-8")
    labels = {node.id: node.label for node in graph.nodes}
    entries = [
        Entry(
            node=node,
            anchor=anchor_of(node.id),
            links=links.get(node.id, ()),
            came_from=[
                (edge.relation.replace("_", " "), anchor_of(edge.source), labels[edge.source])
                for edge in graph.edges
                if edge.target == node.id
            ],
            went_into=[
                (edge.relation.replace("_", " "), anchor_of(edge.target), labels[edge.target])
                for edge in graph.edges
                if edge.source == node.id
            ],
        )
        for node in graph.nodes
    ]
    page = _template().render(
        graph=graph,
        drawing=drawing_of(graph),
        entries=entries,
        zooms=ZOOMS,
        first_zoom=FIRST_ZOOM,
        box_width=BOX_WIDTH,
        box_height=BOX_HEIGHT,
        style=style,
        style_digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    )
    return f"{page}\n"
