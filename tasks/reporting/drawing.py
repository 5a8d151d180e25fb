"""Where the boxes and lines of the lineage's picture stand: one row for an iteration, one column for a stage of the loop."""

from dataclasses import dataclass

from tasks.ancestry.graph import Edge, Graph, Node

BOX_WIDTH, BOX_HEIGHT = 192, 58
COLUMN_WIDTH, ROW_HEIGHT = 232, 124
MARGIN = 24
"""Pixels of the picture at 100 %."""

COLUMNS = (
    "policy",
    "prompts",
    "completions",
    "rewards",
    "samples",
    "labels",
    "reward_training",
    "reward",
    "evaluation",
    "anchor",
    "critic",
)


@dataclass(frozen=True)
class Box:
    """A node with the upper left corner of its box, pixels."""

    node: Node
    anchor: str
    x: int
    y: int


@dataclass(frozen=True)
class Line:
    """An edge as an SVG path, and what it says when it is pointed at."""

    edge: Edge
    path: str
    title: str


@dataclass(frozen=True)
class Drawing:
    """The picture: width and height in pixels, boxes in the graph's order, lines beneath them."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def anchor_of(identity: str) -> str:
    """The id of a node's entry in the page: policy-3 for policy:3."""
    return identity.replace(":", "-")


def drawing_of(graph: Graph) -> Drawing:
    """Every node in the row of its iteration and the column of its stage; a column that nothing stands in is left out."""
    used = [name for name in COLUMNS if any(_column(node) == name for node in graph.nodes)]
    boxes = {
        node.id: Box(
            node=node,
            anchor=anchor_of(node.id),
            x=MARGIN + used.index(_column(node)) * COLUMN_WIDTH,
            y=MARGIN + node.iteration * ROW_HEIGHT,
        )
        for node in graph.nodes
    }
    num_rows = 1 + max((node.iteration for node in graph.nodes), default=0)
    return Drawing(
        width=2 * MARGIN + max(1, len(used)) * COLUMN_WIDTH - (COLUMN_WIDTH - BOX_WIDTH),
        height=2 * MARGIN + num_rows * ROW_HEIGHT - (ROW_HEIGHT - BOX_HEIGHT),
        boxes=tuple(boxes.values()),
        lines=tuple(_line(edge, boxes[edge.source], boxes[edge.target]) for edge in graph.edges),
    )


def _column(node: Node) -> str:
    return node.id.partition(":")[0]


def _line(edge: Edge, source: Box, target: Box) -> Line:
    """From side to side within a row, else from the lower edge to the upper one."""
    if source.y == target.y:
        rightwards = source.x < target.x
        x1, x2 = source.x + BOX_WIDTH * rightwards, target.x + BOX_WIDTH * (not rightwards)
        y = source.y + BOX_HEIGHT // 2
        bend = y if abs(x2 - x1) < COLUMN_WIDTH else y + BOX_HEIGHT
        path = f"M {x1} {y} C {(x1 + x2) // 2} {bend}, {(x1 + x2) // 2} {bend}, {x2} {y}"
    else:
        x1, y1 = source.x + BOX_WIDTH // 2, source.y + BOX_HEIGHT
        x2, y2 = target.x + BOX_WIDTH // 2, target.y
        path = f"M {x1} {y1} C {x1} {y1 + 40}, {x2} {y2 - 40}, {x2} {y2}"
    said = f"{target.node.label}: {edge.relation.replace('_', ' ')} {source.node.label}"
    return Line(edge=edge, path=path, title=said)
