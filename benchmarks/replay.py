"""How much of its oldest labels does the reward model forget over five iterations, by the share of history that is replayed?

    python -m benchmarks.replay                  three seeds, one at a time
    python -m benchmarks.replay --seeds 1        one seed
    python -m benchmarks.replay --report         only the table, from the runs that are there

For each seed one policy loop on the quick start's task, in which the reward model has no weight, gives the labels of six
label sets (the initial one and five iterations). Every share of replay then retrains a reward model of its own on these
same labels, as the pipeline does. Forgetting is the change of accuracy on the anchor set, which is never trained on.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import interval

RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "replay"
SHARES = (0.0, 0.05, 0.1, 0.2)
Run = dict[str, Any]

COLUMNS = {
    "anchor_accuracy_after": "anchor accuracy",
    "anchor_auc_after": "anchor AUC",
    "replayed_accuracy_before": "replayed rows, before",
    "fresh_accuracy_before": "new rows, before",
    "fresh_accuracy_after": "new rows, after",
    "heldout_accuracy_after": "held-out accuracy",
    "heldout_auc_after": "held-out AUC",
    "calibration_ece_raw": "ECE, raw",
    "calibration_ece": "ECE",
}


def run_seed(seed: int, starts: Path) -> None:
    """The policy loop of a seed, then a chain of retrainings for every share, in this process."""
    from benchmarks.algorithms import warm_start
    from benchmarks.reward_chain import chain, first_model, label_sets

    began = time.perf_counter()
    start = warm_start(seed, starts)
    kept = starts / f"replay-labels-{seed}.json"
    if not kept.is_file():
        aside = kept.with_suffix(".part")
        aside.write_text(json.dumps(label_sets(seed, start)))
        aside.rename(kept)
    labels = json.loads(kept.read_text())
    labelled = time.perf_counter()
    folder = starts / f"replay-model-{seed}"
    first = first_model(labels, seed, start, folder)
    run: Run = {"seed": seed, "num_anchor_labels": first.pop("num_anchor_labels"), "first": first, "shares": {}}
    for share in SHARES:
        run["shares"][str(share)] = chain(labels, seed, share, folder)
    run["seconds_of_labels"] = labelled - began
    run["seconds_of_training"] = time.perf_counter() - labelled
    RUNS.mkdir(parents=True, exist_ok=True)
    aside = RUNS / f".{seed}.json"
    aside.write_text(json.dumps(run, indent=1) + "\n")
    aside.rename(RUNS / f"{seed}.json")


def forgotten(runs: Sequence[Run], share: float, against: float | None = None) -> tuple[float, float, float]:
    """Mean and 95 % interval, over seeds and anchor prompts, of the accuracy after the last iteration minus that of the
    first model, or minus that of the chain with ``against`` of replay."""
    differences = []
    for run in runs:
        last = run["shares"][str(share)]["anchor_by_prompt"]
        base = run["first"]["anchor_by_prompt"] if against is None else run["shares"][str(against)]["anchor_by_prompt"]
        differences.append([value - base[prompt] for prompt, value in last.items()])
    return interval(differences)


def table(runs: Sequence[Run]) -> str:
    """The numbers by share and iteration, means over seeds, in Markdown."""
    sizes = " ".join(str(run["num_anchor_labels"]) for run in runs)
    first = _mean([run["first"]["metrics"].get("anchor_accuracy_after") for run in runs])
    lines = [
        f"Seeds {' '.join(str(run['seed']) for run in runs)}; anchor labels by seed: {sizes}; accuracy of the first model on them {first}.",
        "",
        "| replay | change of accuracy on the anchor set [95 %] | against no replay [95 %] | by seed | refused retrainings |",
        "|---|---|---|---|---|",
    ]
    for share in SHARES:
        change = _interval(forgotten(runs, share))
        against = _interval(forgotten(runs, share, SHARES[0])) if share else "-"
        by_seed = " ".join(f"{forgotten([run], share)[0]:+.3f}" for run in runs)
        refused = sum(row["is_refused"] for run in runs for row in run["shares"][str(share)]["iterations"])
        lines.append(f"| {share:.0%} | {change} | {against} | {by_seed} | {refused:.0f} of {5 * len(runs)} |")
    lines += [
        "",
        f"| replay | iteration | replayed rows | {' | '.join(COLUMNS.values())} |",
        "|---" * (3 + len(COLUMNS)) + "|",
    ]
    for share in SHARES:
        chains = [run["shares"][str(share)]["iterations"] for run in runs]
        for number, rows in enumerate(zip(*chains, strict=True), start=1):
            values = " | ".join(_mean([row.get(name) for row in rows]) for name in COLUMNS)
            replayed = sum(row["num_replayed"] for row in rows) / len(rows)
            lines.append(f"| {share:.0%} | {number} | {replayed:.0f} | {values} |")
    return "\n".join(lines) + "\n"


def write_report() -> None:
    """results/replay.json and results/replay.md, and the last line."""
    import torch
    import transformers

    runs = [json.loads(path.read_text()) for path in sorted(RUNS.glob("*.json"))]
    if not runs:
        raise SystemExit(f"no run stands in {RUNS}; run python -m benchmarks.replay first")
    found = {str(share): forgotten(runs, share) for share in SHARES}
    machine = {
        "machine": platform.platform(),
        "processor": _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    summary = {"versions": machine, "forgetting": found, "runs": runs}
    (RESULTS / "replay.json").write_text(json.dumps(summary, indent=1) + "\n")
    text = table(runs)
    (RESULTS / "replay.md").write_text(text)
    print(text)
    said = ", ".join(f"{share:.0%} {_interval(found[str(share)])}" for share in SHARES)
    print(f"replay: forgetting {said} (accuracy on the anchor set, mean of {len(runs)} seeds, 95 % interval)")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _interval(found: tuple[float, float, float]) -> str:
    return f"{found[0]:+.3f} [{found[1]:+.3f}, {found[2]:+.3f}]"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.3f}" if known else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--starts", type=Path, default=Path("runs/benchmark-starts"), help="where labels are kept")
    parser.add_argument("--report", action="store_true", help="only write the table")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_seed(given.seeds[0], given.starts)
        return
    for seed in [] if given.report else given.seeds:
        if not (RUNS / f"{seed}.json").is_file():
            command = [sys.executable, "-m", "benchmarks.replay", "--one", "--seeds", str(seed)]
            subprocess.run([*command, "--starts", str(given.starts)], check=True)
            print(f"seed {seed}: done", flush=True)
    write_report()


if __name__ == "__main__":
    main()
