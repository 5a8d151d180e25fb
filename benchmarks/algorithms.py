"""Which algorithm learns the quick start's task best from one warm start, the same prompts and as many completions?

    python -m benchmarks.algorithms                 every variant, three seeds, two runs at a time (about half an hour on two cores)
    python -m benchmarks.algorithms --seeds 1 --variants grpo rft
    python -m benchmarks.algorithms --report        only the table and the plot, from the runs that are there

Every run is a process of its own, so that its memory is its own. A run that is finished is not run again.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.variants import VARIANTS, recipe

RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "algorithms"


def warm_start(seed: int, folder: Path) -> Path:
    """The first policy of a seed, made once and shared by every variant."""
    start = folder / f"start-{seed}"
    if not (start / "config.json").is_file():
        from tasks.policy.sources import materialise
        from tasks.values.seeds import derive_seed

        config = recipe(VARIANTS["grpo"], seed)
        materialise(config.policy, start, seed=derive_seed(seed, "policy"), on_progress=lambda done, total: None)
    return start


def run_one(name: str, seed: int, folder: Path) -> None:
    """Measure one variant in this process and write its result."""
    from benchmarks.training_run import measured

    result = measured(VARIANTS[name], seed, warm_start(seed, folder)) | {"variant": name}
    RUNS.mkdir(parents=True, exist_ok=True)
    aside = RUNS / f".{name}-{seed}.json"
    aside.write_text(json.dumps(result) + "\n")
    aside.rename(RUNS / f"{name}-{seed}.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--starts", type=Path, default=Path("runs/benchmark-starts"), help="where warm starts are kept")
    parser.add_argument("--report", action="store_true", help="only write the table and the plot")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(given.variants[0], given.seeds[0], given.starts)
        return
    if not given.report:
        for seed in given.seeds:
            warm_start(seed, given.starts)
        missing = [
            (name, seed)
            for seed in given.seeds
            for name in given.variants
            if not (RUNS / f"{name}-{seed}.json").is_file()
        ]
        with ThreadPoolExecutor(given.workers) as pool:
            for done in pool.map(lambda each: _child(*each, given.starts), missing):
                print(done, flush=True)
    from benchmarks.report import write_report

    write_report(RUNS, RESULTS)


def _child(name: str, seed: int, starts: Path) -> str:
    command = [sys.executable, "-m", "benchmarks.algorithms", "--one"]
    subprocess.run([*command, "--variants", name, "--seeds", str(seed), "--starts", str(starts)], check=True)
    result = json.loads((RUNS / f"{name}-{seed}.json").read_text())
    return f"{name} seed {seed}: {result['curve'][0][1]:.3f} -> {result['curve'][-1][1]:.3f}, {result['seconds']:.0f} s"


if __name__ == "__main__":
    main()
