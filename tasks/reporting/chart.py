"""Two lines over the iterations, as the points of an SVG: held-out accuracy and the reward model's mean."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 16, 12, 28
GRID = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Line:
    """``strokes``: point lists, broken where a value is missing; ``dots``: (x, y, what a pointer reads)."""

    name: str
    strokes: tuple[str, ...]
    dots: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Chart:
    """Both values lie in [0, 1]. ``marks``: x of the iterations whose alarm stands."""

    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, int], ...]
    grid: tuple[tuple[float, str], ...]
    marks: tuple[float, ...]


def chart_of(
    iterations: Sequence[int], lines: Sequence[tuple[str, Sequence[float | None]]], alarms: Sequence[bool]
) -> Chart | None:
    """The chart of named series over ``iterations``; None for fewer than two iterations: one point is no course.

    Raises:
        ValueError: a series or ``alarms`` is not as long as ``iterations``.
    """
    if any(len(values) != len(iterations) for values in [*(values for _, values in lines), alarms]):
        raise ValueError(f"a series does not have the {len(iterations)} values of the iterations")
    if len(iterations) < 2:
        return None
    span = (WIDTH - LEFT - RIGHT) / (len(iterations) - 1)
    places = [round(LEFT + span * index, 1) for index in range(len(iterations))]
    every = -(-len(iterations) // 12)
    return Chart(
        lines=tuple(_line(name, iterations, places, values) for name, values in lines),
        ticks=tuple((x, number) for x, number in zip(places, iterations, strict=True) if number % every == 0),
        grid=tuple((_height(value), format(value, "g")) for value in GRID),
        marks=tuple(x for x, standing in zip(places, alarms, strict=True) if standing),
    )


def _line(name: str, iterations: Sequence[int], places: Sequence[float], values: Sequence[float | None]) -> Line:
    strokes: list[list[str]] = [[]]
    dots = []
    for number, x, value in zip(iterations, places, values, strict=True):
        if value is None:
            strokes.append([])
            continue
        y = _height(value)
        strokes[-1].append(f"{x},{y}")
        dots.append((x, y, f"iteration {number}: {name} {value:.3f}"))
    return Line(name, tuple(" ".join(stroke) for stroke in strokes if len(stroke) > 1), tuple(dots))


def _height(value: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value), 1)
