"""How many rows a second does the verifier pool score, against math-verify called in a plain loop?

    python -m benchmarks.verifiers [--math500 FOLDER] [--repeats N]

Two sets: the 500 gold solutions of MATH-500 (each against its own answer and, boxed, against the next one's), and integers.
Ours: the ``math`` verifier in a pool of 1 and of 2 processes, with its deadline, its memory limit and its rules. The peer:
math-verify with its defaults in one process (parse the gold answer, parse the completion, verify), whose time limit is a
signal of that process. Repeats take turns, so that a busy machine slows both; the medians are reported. Processes are
started and warm before the clock starts, on both sides.
"""

import argparse
import importlib.metadata
import json
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.verifiers.answer_kinds import MathVerifier
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.verdict import ScoreItem

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ROOT.parent / "shared" / "data" / "math500"
RESULTS = ROOT / "benchmarks" / "results" / "verifiers.json"
NUM_INTEGERS = 2000
Scores = list[float | None]


def math500(folder: Path) -> list[ScoreItem]:
    """Each solution against its own answer, and the next problem's answer in a box against it."""
    rows = [json.loads(line) for line in (folder / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    right = [ScoreItem(row["question"], row["answer"], row["solution"], {}) for row in rows]
    following = [*rows[1:], rows[0]]
    wrong = [
        ScoreItem(row["question"], row["answer"], f"So it is $\\boxed{{{other['answer']}}}$.", {})
        for row, other in zip(rows, following, strict=True)
    ]
    return [item for pair in zip(right, wrong, strict=True) for item in pair]


def integers(count: int) -> list[ScoreItem]:
    """Sums with a right and a wrong integer in turn."""
    return [
        ScoreItem(f"{n} + {n}", str(2 * n), f"Twice {n} is $\\boxed{{{2 * n + n % 2}}}$.", {}) for n in range(count)
    ]


def plain_loop(items: Sequence[ScoreItem]) -> Scores:
    """math-verify as its own documentation calls it."""
    from math_verify import parse, verify

    return [float(verify(parse(f"${item.answer}$"), parse(item.completion))) for item in items]


def timed(score: Callable[[Sequence[ScoreItem]], Scores], items: Sequence[ScoreItem]) -> tuple[float, Scores]:
    """Rows a second, and the rewards."""
    started = time.perf_counter()
    rewards = score(items)
    return len(items) / (time.perf_counter() - started), rewards


def measure(items: Sequence[ScoreItem], repeats: int) -> dict[str, object]:
    """The medians of every contender, and how often each agrees with what is right by construction."""
    verifier = MathVerifier(kind="math")
    with VerifierPool([verifier], 1, 10.0) as one, VerifierPool([verifier], 2, 10.0) as two:

        def pooled(pool: VerifierPool) -> Callable[[Sequence[ScoreItem]], Scores]:
            return lambda rows: [verdict.reward for (verdict,) in pool.score(rows, lambda done, total: None)]

        contenders = {"math_verify_loop": plain_loop, "pool_1": pooled(one), "pool_2": pooled(two)}
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        rewards: dict[str, Scores] = {}
        for score in contenders.values():
            timed(score, items[:100])
        for repeat in range(repeats):
            for name, score in contenders.items():
                rate, rewards[name] = timed(score, items)
                rates[name].append(rate)
                print(f"  repeat {repeat + 1}  {name:16} {rate:8.0f} rows/s", flush=True)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    return {
        "num_rows": len(items),
        "rows_per_second": {name: round(each, 1) for name, each in medians.items()},
        "all_repeats": {name: [round(each, 1) for each in found] for name, found in rates.items()},
        "ratio_1": round(medians["pool_1"] / medians["math_verify_loop"], 2),
        "ratio_2": round(medians["pool_2"] / medians["math_verify_loop"], 2),
        "num_accepted": {name: sum(each == 1 for each in found) for name, found in rewards.items()},
        "num_unscored": {name: sum(each is None for each in found) for name, found in rewards.items()},
    }


def machine() -> dict[str, object]:
    """What the numbers belong to."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": names[0].partition(":")[2].strip() if names else platform.processor(),
        "num_cpus": os.cpu_count(),
        "load_average_before": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("math-verify", "sympy", "latex2sympy2_extended")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--math500", type=Path, default=BESIDE, help="folder that holds test.jsonl of MATH-500")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    found: dict[str, Any] = {"machine": machine(), "repeats": given.repeats}
    sets = {"math500": math500(given.math500), "integers": integers(NUM_INTEGERS)}
    for name, items in sets.items():
        print(f"{name}: {len(items)} rows", flush=True)
        found[name] = measure(items, given.repeats)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(summary(found))


def summary(found: dict[str, Any]) -> str:
    """The one line that is quoted."""
    hard, easy = found["math500"], found["integers"]
    return (
        f"verifiers: {hard['rows_per_second']['pool_1']:.0f} rows/s, {hard['ratio_1']}x math-verify in a loop "
        f"(MATH-500, 1 process; 2 processes {hard['ratio_2']}x; integers {easy['ratio_1']}x and {easy['ratio_2']}x)"
    )


if __name__ == "__main__":
    main()
