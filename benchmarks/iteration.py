"""How long does a whole step take, against TRL's GRPOTrainer, and where does our time go?

    python -m benchmarks.iteration [--short] [--parts quickstart smollm2]

Quick start: our complete flow (Prefect server, verifier processes, reward model, Parquet, checkpoints, MLflow) and TRL's
trainer, each in a process of its own from the same first policy, take turns step by step, so that a busy machine slows both;
medians. TRL samples, scores and updates only: it writes nothing down. Then steps of our flow with SmolLM2-135M, which TRL does
not make here. The first policy of the quick start is made once (a minute) and kept. The machine has to have room for a checkpoint of
SmolLM2 and its optimiser (1.6 GB) twice.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.algorithms import warm_start

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "iteration.json"
STARTS = ROOT / "runs" / "benchmark-starts"
PACKAGES = ("torch", "transformers", "trl", "prefect", "mlflow", "pyarrow")
BESIDES = ("storage", "orchestration", "tracking")


class Side:
    """A process that makes a step per request."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
        )

    def step(self) -> dict[str, Any]:
        """Make the next step and give what it measured."""
        self._until("ready")
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return json.loads(self._until("{"))  # type: ignore[no-any-return]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _until(self, beginning: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(beginning):
                return line
        raise SystemExit(f"{self._process.args} ended with status {self._process.wait()}")


def quickstart(repeats: int, folder: Path) -> dict[str, Any]:
    """Steps of both in turn; the first of each warms up and does not count."""
    start = str(warm_start(1, STARTS))
    ours = Side("benchmarks.iteration_ours", "quickstart", start, str(folder / "ours"))
    theirs = Side("benchmarks.iteration_theirs", start, str(folder / "theirs"))
    try:
        found: dict[str, list[dict[str, Any]]] = {"ours": [], "trl": []}
        for repeat in range(repeats + 1):
            for name, side in (("ours", ours), ("trl", theirs)):
                step = side.step()
                step.setdefault("seconds", sum(step.get("shares", {}).values()))
                print(f"  quick start, step {repeat}  {name:5} {step['seconds']:6.2f} s", flush=True)
                found[name] += [step] * bool(repeat)
    finally:
        ours.close()
        theirs.close()
    seconds = {name: statistics.median(step["seconds"] for step in steps) for name, steps in found.items()}
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(found["ours"], found["trl"], strict=True)]
    return {
        "seconds_per_step": {name: round(value, 3) for name, value in seconds.items()},
        "all_steps": {name: [round(step["seconds"], 3) for step in steps] for name, steps in found.items()},
        "tokens_per_completion": {
            name: round(statistics.mean(step["tokens"] for step in steps), 2) for name, steps in found.items()
        },
        "times_trl": round(statistics.median(ratios), 2),
        "shares": shares(found["ours"]),
    }


def smollm2(repeats: int, folder: Path) -> dict[str, Any]:
    """Steps of our flow alone. Of several the first, which loads models, does not count."""
    ours = Side("benchmarks.iteration_ours", "smollm2", "", str(folder / "smollm2"))
    try:
        steps = []
        for number in range(repeats):
            step = ours.step()
            step["seconds"] = sum(step["shares"].values())
            print(f"  SmolLM2, step {number + 1}  {step['seconds']:6.1f} s", flush=True)
            steps.append(step)
    finally:
        ours.close()
    return {"all_steps": [round(step["seconds"], 2) for step in steps], "shares": shares(steps[1:] or steps)}


def shares(steps: list[dict[str, Any]]) -> dict[str, float]:
    """Median share of each part in a step, in percent."""
    names = dict.fromkeys(name for step in steps for name in step["shares"])
    return {
        name: round(statistics.median(100 * step["shares"].get(name, 0.0) / step["seconds"] for step in steps), 2)
        for name in names
    }


def machine() -> dict[str, object]:
    """What the numbers belong to."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": names[0].partition(":")[2].strip() if names else platform.processor(),
        "num_cpus": os.cpu_count(),
        "load_average_before": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def summary(found: dict[str, Any]) -> str:
    """The one line that is quoted."""
    besides = {
        name: sum(found[name]["shares"].get(each, 0.0) for each in BESIDES) for name in ("quickstart", "smollm2")
    }
    return (
        f"iteration: {found['quickstart']['times_trl']}x TRL; storage and orchestration {besides['quickstart']:.1f} % of a "
        f"quick-start step, {besides['smollm2']:.1f} % of a SmolLM2 step"
    )


PARTS = {"quickstart": quickstart, "smollm2": smollm2}
STEPS = {"quickstart": 5, "smollm2": 4}
SHORT = {"quickstart": 3, "smollm2": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="the others as they stand")
    parser.add_argument("--short", action="store_true", help="fewer steps; writes no result")
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for part in given.parts:
        before = machine()
        with tempfile.TemporaryDirectory(dir=ROOT / "runs") as folder:
            found[part] = PARTS[part]((SHORT if given.short else STEPS)[part], Path(folder)) | {"machine": before}
        print(f"  {found[part]}", flush=True)
        if not given.short:
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    if set(found) == set(PARTS):
        print(summary(found))


if __name__ == "__main__":
    main()
