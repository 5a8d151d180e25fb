"""What an experiment came to, as data: for the line at the end, the file for programs and the table for people."""

import json
import os
import platform
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.manifest import code
from tests.chaos.kills import Campaign


@dataclass(frozen=True)
class Outcome:
    """``status`` is "as expected", "differs" or "not tried"; ``found`` says what differs, or why it was not tried."""

    name: str
    expected: str
    status: str
    found: list[str]
    seconds: float


def line(campaigns: list[Campaign], outcomes: list[Outcome], seconds: float) -> str:
    """The last line of the program."""
    kills = sum(len(each.kills) for each in campaigns)
    differing = sum(bool(each.findings) for each in campaigns) + sum(each.status == "differs" for each in outcomes)
    untried = [each.name for each in outcomes if each.status == "not tried"]
    left_out = f", {len(untried)} not tried ({', '.join(untried)})" if untried else ""
    return (
        f"chaos: {kills} kills in {sum(each.num_runs for each in campaigns)} runs, "
        f"{len(outcomes) - len(untried)} faults{left_out}, {differing} differ from what is promised, {seconds:.0f} s"
    )


def write(path: Path, seed: int, campaigns: list[Campaign], outcomes: list[Outcome], seconds: float) -> None:
    """Everything as JSON: ``kills`` one by one, ``campaigns`` and ``faults`` with what differed; times in seconds."""
    result = {
        "line": line(campaigns, outcomes, seconds),
        "seed": seed,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()} {platform.release()}",
        "code": code().model_dump(),
        "seconds": round(seconds, 1),
        "campaigns": [
            {
                "target": each.target,
                "num_kills": len(each.kills),
                "num_runs": each.num_runs,
                "outcomes": Counter(kill.outcome for kill in each.kills),
                "differences": each.findings,
                "kills": [asdict(kill) for kill in each.kills],
            }
            for each in campaigns
        ],
        "faults": [asdict(each) for each in outcomes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
