"""Kill, fill, cut off and corrupt; run the same command again; compare with a run that nothing disturbed: make chaos."""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.chaos import campaigns, clock_faults, faults, mlflow_faults
from tests.chaos.bench import Bench
from tests.chaos.kills import Campaign
from tests.chaos.outcomes import Outcome, line, write
from tests.chaos.servers import Server

RESULT = ROOT / ".venv" / "chaos.json"

FAULTS: dict[str, Callable[[Bench], list[str]]] = {
    "full disk": faults.full_disk,
    "read-only store": faults.read_only_store,
    "second run on one lineage": faults.second_run,
    "changed byte in a table": faults.corrupted_part,
    "changed byte in weights": faults.corrupted_weights,
    "table cut short": faults.truncated_part,
    "no usable group": faults.no_usable_group,
    "SIGTERM during commits": faults.terminated,
    "SIGHUP during commits": faults.hung_up,
    "Ctrl-C during commits": faults.interrupted,
    "clock jumps during a run": clock_faults.jumps_during_a_run,
    "clock goes back between runs": clock_faults.goes_back_between_runs,
    "MLflow not there": mlflow_faults.not_there,
    "MLflow dies": mlflow_faults.dies,
    "MLflow hangs": mlflow_faults.hangs,
}


def tried(bench: Bench, name: str) -> Outcome:
    """One fault, made and looked at."""
    fault, began = FAULTS[name], time.monotonic()
    expected = (fault.__doc__ or "").strip()
    try:
        found = list(fault(bench))
        status = "differs" if found else "as expected"
    except faults.NotHere as error:
        found, status = [str(error)], "not tried"
    return Outcome(name, expected, status, found, round(time.monotonic() - began, 1))


def say(what: str, differences: list[str]) -> None:
    print(what, flush=True)
    for each in differences:
        print(f"  differs: {each}", flush=True)


def main() -> int:
    """Exit status 1 when anything differs from what docs/durability.md promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of all random instants and choices")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the kills to make; 1 is the whole program")
    parser.add_argument("--out", type=Path, default=RESULT, help="the result as JSON")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="campaigns and faults to make; all by default")
    asked = parser.parse_args()
    known = [*campaigns.CAMPAIGNS, *FAULTS]
    if unknown := [name for name in asked.only or [] if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = asked.only or known
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # small disks are unmounted on the way out
    began = time.monotonic()
    made: list[Campaign] = []
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        prefect = Server("prefect", folder / "prefect-home")
        prefect.start()
        try:
            bench = Bench(folder, f"{prefect.url}/api")
            for each in [each for each in campaigns.CAMPAIGNS if each in wanted]:
                rng = random.Random(f"{asked.seed}/{each}")
                done = campaigns.made(bench, each, rng, prefect, asked.scale)
                made.append(done)
                say(f"{each}: {len(done.kills)} kills in {done.num_runs} runs", done.findings)
            for each in [each for each in FAULTS if each in wanted]:
                outcome = tried(bench, each)
                outcomes.append(outcome)
                say(f"{each}: {outcome.status}, {outcome.seconds} s", outcome.found)
        finally:
            prefect.stop()
    seconds = time.monotonic() - began
    write(asked.out, asked.seed, made, outcomes, seconds)
    print(line(made, outcomes, seconds))
    return int(any(each.findings for each in made) or any(each.status == "differs" for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
