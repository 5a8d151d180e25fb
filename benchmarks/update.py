"""How long does one policy update take and how much memory above the weights, against TRL's GRPOTrainer on the same completions?

    python -m benchmarks.update [--short] [--repeats N]

SmolLM2-135M in float32, a thread for every core that the process may use; one group of 8 completions of 32 to 160 tokens behind a prompt of 96, TRL's default
objective (its DAPO loss, no KL), one optimiser update. TRL gets the completions through its ``rollout_func``. Before anything is
timed, loss and gradient norm must agree. Each contender is a process of its own, warm; updates take turns, medians count.
Memory: the highest resident size of an update (VmHWM) over the size before the first one, with the weights loaded, so that
gradients, moments and activations are what is measured. Processor time (all threads) is kept beside the wall clock: on a busy
machine its ratios move less. "TRL default" checkpoints gradients, as it comes (bfloat16 off on both
sides, so that the numbers can be compared to the last digits); "TRL tuned" does not; without --short its smaller batch is tried too
and the faster one counts. "ours, lean" checkpoints and keeps the moments in eight bits.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.update_sides import NUM_THREADS, token_ids

RESULTS = Path(__file__).resolve().parent / "results"
WEIGHTS = Path("runs/benchmark-starts/smollm2")
SETS = [
    ["ours", "ours, lean", "TRL default", "TRL tuned"],
    ["ours", "ours, checkpointing", "ours, int8 moments", "TRL tuned, batches of 4"],
]
"""Contenders that live side by side and take turns; more of them do not fit into 24 GiB. --short measures the first set."""
TOLERANCE = 1e-3
"""Relative; TRL divides by a logged loss of four digits and clips with another sum."""


def weights() -> Path:
    """SmolLM2 as a folder, made once."""
    if not (WEIGHTS / "config.json").exists():
        from tasks.policy.config import SmolLM2Policy
        from tasks.policy.sources import materialise

        materialise(SmolLM2Policy(kind="smollm2"), WEIGHTS, seed=1, on_progress=lambda done, total: None)
    return WEIGHTS


class Contender:
    """A process that makes one update per line it is sent."""

    def __init__(self, name: str, folder: Path) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(NUM_THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.update_sides", name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._next(lambda line: line == "ready")

    def update(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return json.loads(self._next(lambda line: line.startswith('{"seconds"')))

    def close(self) -> None:
        self._process.communicate()

    def _next(self, wanted: Any) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if wanted(line.strip()):
                return line.strip()
        raise RuntimeError(f"the contender ended with status {self._process.wait()}; run it by hand to see why")


def measure(names: list[str], repeats: int) -> dict[str, dict[str, Any]]:
    """Per contender: every repeat's seconds, the largest memory, loss and gradient norm of the first update."""
    folder = weights()
    contenders = {name: Contender(name, folder) for name in names}
    found: dict[str, dict[str, Any]] = {}
    for name, contender in contenders.items():
        first = contender.update()
        found[name] = {
            "loss": first["loss"],
            "grad_norm": first["grad_norm"],
            "mib": first["mib"],
            "seconds": [],
            "cpu": [],
        }
        print(f"{name:26} loss {first['loss']:.6f}  gradient norm {first['grad_norm']:.6f}", flush=True)
    for name, each in found.items():
        for number in ("loss", "grad_norm"):
            expected = found["ours"][number]
            assert abs(each[number] - expected) <= TOLERANCE * abs(expected), (name, number, each[number], expected)
    for repeat in range(repeats):
        for name, contender in contenders.items():
            update = contender.update()
            found[name]["seconds"].append(round(update["seconds"], 3))
            found[name]["cpu"].append(round(update["cpu"], 3))
            found[name]["mib"] = round(max(found[name]["mib"], update["mib"]))
            print(
                f"  repeat {repeat + 1}  {name:26} {update['seconds']:7.2f} s  {update['cpu']:7.2f} s of processor time  "
                f"{update['mib']:6.0f} MiB",
                flush=True,
            )
    for contender in contenders.values():
        contender.close()
    return found


def compared(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One set's contenders with their medians over those of ours in the same set."""
    ours = found["ours"]
    for each in found.values():
        for kind in ("seconds", "cpu"):
            each[f"{kind}_over_ours"] = round(statistics.median(each[kind]) / statistics.median(ours[kind]), 3)
    return found


def summary(sets: list[dict[str, dict[str, Any]]]) -> dict[str, float]:
    """The ratios that are quoted; "TRL tuned" is the faster of its batch sizes."""
    found = {name: each for one in reversed(sets) for name, each in one.items()}  # "ours" beside TRL's default
    default, lean = found["TRL default"], found["ours, lean"]
    tuned = min(
        (each for name, each in found.items() if name.startswith("TRL tuned")),
        key=lambda each: each["seconds_over_ours"],
    )
    return {
        "default": default["seconds_over_ours"],
        "tuned": tuned["seconds_over_ours"],
        "default_cpu": default["cpu_over_ours"],
        "tuned_cpu": tuned["cpu_over_ours"],
        "memory": round(found["ours"]["mib"] / default["mib"], 2),
        "memory_tuned": round(found["ours"]["mib"] / tuned["mib"], 2),
        "lean": round(default["seconds_over_ours"] / lean["seconds_over_ours"], 2),
        "memory_lean": round(lean["mib"] / default["mib"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="the first set of contenders, two repeats")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    sets, repeats = (SETS[:1], 2) if given.short else (SETS, given.repeats)
    load = [round(each, 2) for each in os.getloadavg()]
    found = [compared(measure(names, repeats)) for names in sets]
    ratios = summary(found)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "trl")}
    prompt, completions = token_ids()
    machine = {"threads": NUM_THREADS, "load_average_before": load, "python": platform.python_version(), **versions}
    work = {"prompt_tokens": len(prompt), "completion_tokens": [len(ids) for ids in completions], "repeats": repeats}
    name = "update-short.json" if given.short else "update.json"
    (RESULTS / name).write_text(
        json.dumps({"machine": machine, **work, "sets": found, "ratios": ratios}, indent=1) + "\n"
    )
    print(
        f"update: {ratios['default']:.1f}x TRL default, {ratios['tuned']:.1f}x TRL tuned, memory {ratios['memory']}x "
        f"(lean: {ratios['lean']:.1f}x TRL default, memory {ratios['memory_lean']}x; processor time {ratios['default_cpu']:.1f}x and "
        f"{ratios['tuned_cpu']:.1f}x)"
    )


if __name__ == "__main__":
    main()
