"""The table and the plot of the algorithm benchmark, from the runs that are there."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.variants import VARIANTS

NUM_RESAMPLES = 2000
Run = dict[str, Any]

CLAIMS = [
    ("grpo_process", "grpo", "process supervision against outcome supervision"),
    ("grpo", "online_rft", "GRPO against Online RFT"),
    ("online_rft", "rft", "Online RFT against RFT"),
    ("grpo", "grpo_one_shot", "iterative against one-shot, outcome"),
    ("grpo_process", "grpo_process_one_shot", "iterative against one-shot, process"),
    ("grpo", "ppo", "GRPO against PPO"),
]


def load(folder: Path) -> dict[str, list[Run]]:
    """Variant -> its runs by seed."""
    found: dict[str, list[Run]] = {}
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        found.setdefault(run["variant"], []).append(run)
    return {name: sorted(found[name], key=lambda run: run["seed"]) for name in VARIANTS if name in found}


def interval(by_seed: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Mean, and the 95 % interval of resampling seeds and, within each, prompts.

    With three seeds the outer resampling is coarse: read it as the spread that was seen, not as a law.
    """
    rng = random.Random(0)  # a resampling, no secret
    means = []
    for _ in range(NUM_RESAMPLES):
        seeds = rng.choices(by_seed, k=len(by_seed))
        values = [value for seed in seeds for value in rng.choices(seed, k=len(seed))]
        means.append(sum(values) / len(values))
    means.sort()
    everything = [value for seed in by_seed for value in seed]
    low, high = means[int(0.025 * NUM_RESAMPLES)], means[int(0.975 * NUM_RESAMPLES) - 1]
    return sum(everything) / len(everything), low, high


def differences(first: Sequence[Run], second: Sequence[Run]) -> list[list[float]]:
    """Per seed that both have, the difference of accuracies on each held-out prompt."""
    other = {run["seed"]: run["accuracy_by_prompt"] for run in second}
    return [
        [value - other[run["seed"]][prompt] for prompt, value in run["accuracy_by_prompt"].items()]
        for run in first
        if run["seed"] in other
    ]


def _row(name: str, runs: Sequence[Run], alone: dict[str, float]) -> str:
    mean, low, high = interval([list(run["accuracy_by_prompt"].values()) for run in runs])
    start = _mean([run["curve"][0][1] for run in runs])
    by_seed = " ".join(f"{run['curve'][-1][1]:.3f}" for run in runs)
    return (
        f"| `{name}` | {start:.3f} | {mean:.3f} [{low:.3f}, {high:.3f}] | {by_seed} | "
        f"{_mean([run['num_completions'] for run in runs]):.0f} | {_mean([run['num_tokens'] for run in runs]) / 1000:.0f} | "
        f"{_mean([run['num_steps'] for run in runs]):.1f} | {_mean([run['seconds'] for run in runs]):.0f} | "
        f"{alone.get('seconds_per_step', math.nan):.1f} | {alone.get('peak_mib', math.nan):.0f} |"
    )


def table(found: dict[str, list[Run]], alone: dict[str, dict[str, float]]) -> str:
    """The table and the paired comparisons, in Markdown."""
    lines = [
        "| variant | accuracy at the start | final accuracy [95 %] | by seed | completions | thousand tokens | steps | "
        "seconds | seconds per step, alone | peak MiB, alone |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(name, runs, alone.get(name, {})) for name, runs in found.items()),
        "",
        "Seconds are of runs side by side on two cores; those alone, and the memory, are of benchmarks/memory.py.",
        "",
        "| question | difference of final accuracy [95 %] | seeds |",
        "|---|---|---|",
    ]
    for first, second, question in CLAIMS:
        if first in found and second in found and (paired := differences(found[first], found[second])):
            mean, low, high = interval(paired)
            lines.append(
                f"| {question} (`{first}` - `{second}`) | {mean:+.3f} [{low:+.3f}, {high:+.3f}] | {len(paired)} |"
            )
    return "\n".join(lines) + "\n"


def plot(found: dict[str, list[Run]], path: Path) -> None:
    """Mean accuracy over seeds against completions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6))
    for index, (name, runs) in enumerate(found.items()):
        points = min(len(run["curve"]) for run in runs)
        x = [_mean([run["curve"][point][0] for run in runs]) for point in range(points)]
        y = [_mean([run["curve"][point][1] for run in runs]) for point in range(points)]
        style = ("-", "--", ":")[index // 10 % 3] if not name.endswith("one_shot") else ":"
        axes.plot(x, y, style, color=pyplot.get_cmap("tab20")(index % 20), label=name)
    axes.set_xlabel("completions sampled")
    axes.set_ylabel("held-out accuracy (temperature 1)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write_report(runs: Path, results: Path) -> None:
    """results/algorithms.md and results/algorithms.png."""
    found = load(runs)
    if not found:
        raise SystemExit(f"no run stands in {runs}; run python -m benchmarks.algorithms first")
    measured = results / "memory.json"
    text = table(found, json.loads(measured.read_text()) if measured.is_file() else {})
    (results / "algorithms.md").write_text(text)
    plot(found, results / "algorithms.png")
    print(text)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
