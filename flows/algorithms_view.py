"""The algorithms in the terminal: the parts of every preset and its source."""

from typing import Any

from rich.console import Console
from rich.padding import Padding

from tasks.grpo.presets import DEFAULTS, PRESETS, TAGS, Preset

INDENT = 4


def show_algorithms(out: Console) -> None:
    """Every preset: what it is in short, its parts in the words that a recipe uses, its paper."""
    for name, preset in PRESETS.items():
        out.print(f"[bold]{name}[/bold]  {preset.summary}", highlight=False)
        for line in (parts_of(preset), preset.source):
            out.print(Padding(f"[dim]{line}[/dim]", (0, 0, 0, INDENT)), highlight=False)
    out.print(
        'Every part can be set in \\[update]: aggregation = "token_mean", kl = { beta = 0.01 }, '
        "objective = { clip_high = 0.28 }. docs/algorithms.md has the formulas.",
        highlight=False,
    )


def parts_of(preset: Preset) -> str:
    """What the preset sets: "advantages group; objective clip (clip_low 0.2, clip_high 0.28); ..."; the parts that every
    algorithm can do without are named only where it has them."""
    named = [
        f"{part.replace('_', ' ')} {describe(part, settings)}"
        for part, settings in preset.parts.items()
        if isinstance(settings, dict) and (settings != DEFAULTS[part] or part in ("advantages", "objective"))
    ]
    if preset.parts["rollout_policy"] == "initial":
        named.append("completions of the lineage's first policy")
    return "; ".join(named)


def describe(part: str, settings: dict[str, Any]) -> str:
    """The kind of a part and what it sets beside it: "clip (clip_low 0.2, clip_high 0.28)"."""
    tag = TAGS.get(part, "kind")
    knobs = ", ".join(f"{name} {value}" for name, value in settings.items() if name != tag)
    return f"{settings.get(tag, '')} ({knobs})".strip() if knobs else str(settings.get(tag, "of its own"))
