"""The clickable picture on a version's page in MLflow: the last iterations as tiles, each tile an SVG and a link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

TILE_WIDTH, TILE_HEIGHT = 190, 86
BOX_WIDTH, BOX_HEIGHT = 168, 46
NUM_ROWS = 5
"""Iterations that a strip shows: fifteen tiles, whose addresses fit into a description."""
COLUMNS = ("policy", "data", "reward")
FILLS = {"policy": "#dbeafe", "data": "#dcfce7", "reward": "#fde68a"}


@dataclass(frozen=True)
class Tile:
    """A box of the strip; ``address`` is where it leads, "" for nowhere."""

    title: str
    detail: str
    address: str


@dataclass(frozen=True)
class Row:
    """One iteration: the policy and the reward model that it begins with, and the rollouts that it makes; None: no box."""

    policy: Tile | None
    data: Tile | None
    reward: Tile | None


@dataclass(frozen=True)
class Strip:
    """``pictures``: artifact path -> SVG; ``html``: the tiles as links, for a description."""

    pictures: Mapping[str, str]
    html: str


def strip_of(rows: Sequence[Row], name: str, marked: str) -> Strip:
    """The last ``NUM_ROWS`` rows.

    Args:
        name: of the version ("policy-3"); the pictures stand under lineage/NAME/.
        marked: column of the last row whose box is outlined.
    """
    shown = list(rows[-NUM_ROWS:])
    body = _lines(shown) + "".join(
        _box(column, index, tile, is_marked=column == marked and index == len(shown) - 1)
        for index, row in enumerate(shown)
        for column in COLUMNS
        if (tile := getattr(row, column)) is not None
    )
    pictures, lines = {}, []
    for index, row in enumerate(shown):
        cells = ""
        for position, column in enumerate(COLUMNS):
            path = f"lineage/{name}/{index}{column[0]}.svg"
            pictures[path] = _crop(body, position, index)
            image = f'<img src="get-artifact?path={quote(path, safe="")}&run_uuid={{run}}">'
            tile = getattr(row, column)
            cells += f'<a href="{escape(tile.address)}">{image}</a>' if tile is not None and tile.address else image
        lines.append(f"<div>{cells}</div>")
    return Strip(pictures=pictures, html="".join(lines))


def _centre(column: str, index: int) -> tuple[float, float]:
    return (COLUMNS.index(column) + 0.5) * TILE_WIDTH, (index + 0.5) * TILE_HEIGHT


def _lines(rows: Sequence[Row]) -> str:
    pairs = []
    for index, row in enumerate(rows):
        later = rows[index + 1] if index + 1 < len(rows) else None
        for column in ("policy", "reward"):
            if row.data is not None and getattr(row, column) is not None:
                pairs.append(((column, index), ("data", index)))
            if later is not None and getattr(later, column) is not None:
                if row.data is not None:
                    pairs.append((("data", index), (column, index + 1)))
                if getattr(row, column) is not None:
                    pairs.append(((column, index), (column, index + 1)))
    drawn = ""
    for source, target in pairs:
        (x1, y1), (x2, y2) = _centre(*source), _centre(*target)
        drawn += f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#7c93a3" stroke-width="1.5"/>'
    return drawn


def _box(column: str, index: int, tile: Tile, *, is_marked: bool) -> str:
    x, y = _centre(column, index)
    stroke, width = ("#c2410c", 3) if is_marked else ("#51697a", 1)
    return (
        f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7" '
        f'fill="{FILLS[column]}" stroke="{stroke}" stroke-width="{width}"/>'
        f'<text x="{x:g}" y="{y - 3:g}" text-anchor="middle" font-size="13" font-weight="600">{escape(tile.title)}</text>'
        f'<text x="{x:g}" y="{y + 14:g}" text-anchor="middle" font-size="11" fill="#3b4a54">{escape(tile.detail)}</text>'
    )


def _crop(body: str, position: int, index: int) -> str:
    x, y = position * TILE_WIDTH, index * TILE_HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{TILE_WIDTH}" height="{TILE_HEIGHT}" '
        f'viewBox="{x} {y} {TILE_WIDTH} {TILE_HEIGHT}" font-family="sans-serif">'
        f'<rect x="{x}" y="{y}" width="{TILE_WIDTH}" height="{TILE_HEIGHT}" fill="white"/>{body}</svg>'
    )
