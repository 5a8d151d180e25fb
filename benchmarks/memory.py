"""How much memory and time does a step of each algorithm take, alone on the machine?

    python -m benchmarks.memory

Two steps of every variant from the warm start of seed 1, one after the other, each in a process of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.algorithms import RESULTS, warm_start
from benchmarks.variants import VARIANTS

NUM_STEPS = 2
STARTS = Path("runs/benchmark-starts")


def measure(name: str) -> None:
    """Print one variant's numbers as JSON."""
    from benchmarks import training_run

    training_run.NUM_STEPS = NUM_STEPS
    result = training_run.measured(VARIANTS[name], 1, warm_start(1, STARTS))
    print(json.dumps({"peak_mib": result["peak_mib"], "seconds_per_step": result["seconds"] / result["num_steps"]}))


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    warm_start(1, STARTS)
    lines = ["| variant | peak MiB of the process | seconds per step |", "|---|---|---|"]
    for name in VARIANTS:
        command = [sys.executable, "-m", "benchmarks.memory", name]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(printed.splitlines()[-1])
        lines.append(f"| `{name}` | {found['peak_mib']:.0f} | {found['seconds_per_step']:.2f} |")
        print(lines[-1], flush=True)
    (RESULTS / "memory.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
