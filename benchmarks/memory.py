"""How much memory and time does a step of each algorithm take, alone on the machine?

    python -m benchmarks.memory                 then python -m benchmarks.algorithms --report puts it into the table

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
    found = {}
    for name in VARIANTS:
        command = [sys.executable, "-m", "benchmarks.memory", name]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[name] = json.loads(printed.splitlines()[-1])
        print(name, found[name], flush=True)
    (RESULTS / "memory.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
