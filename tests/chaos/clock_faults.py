"""The machine's clock jumps under a run; the clock that only counts seconds does not."""

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.chaos.bench import Bench, Findings
from tests.chaos.faults import NotHere

LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"
JUMP_SECONDS = 3.0
BACK, FORTH = "-400d", "+400d"


def _faked(offset_file: Path) -> dict[str, str]:
    libraries = sorted(Path("/").glob(LIBRARY.lstrip("/")))
    if not libraries:
        raise NotHere("libfaketime is not there (Debian: apt-get install faketime)")
    return {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset_file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def jumps_during_a_run(bench: Bench) -> list[str]:
    """The clock goes 400 days forth and back again while the run is under way: nothing changes but time stamps."""
    found, subject = Findings(), bench.subject("clock-jumps")
    offset = bench.folder / "jumping-clock"
    offset.write_text("+0")
    running = subject.start(**_faked(offset))
    seconds, is_alive = 0.0, True
    while is_alive:
        seconds += JUMP_SECONDS
        is_alive = running.sleep_until(seconds)
        offset.write_text(FORTH if int(seconds / JUMP_SECONDS) % 2 else BACK)
    done = running.end()
    found.ended("the run", done, 0)
    found.expect(seconds > 2 * JUMP_SECONDS, "the run was over before the clock had jumped both ways")
    return found + bench.as_undisturbed(subject)


def goes_back_between_runs(bench: Bench) -> list[str]:
    """After a kill the clock stands 400 days earlier: the lineage's token still grows, and the same command finishes."""
    found, subject = Findings(), bench.subject("clock-back")
    offset = bench.folder / "earlier-clock"
    offset.write_text("+0")
    half = str(bench.straight(subject.arguments).num_writes // 2)
    found.ended("the first run", subject.run(CHAOS_AT_WRITE=half), -signal.SIGKILL)
    before = json.loads((subject.store / "small" / "holder.json").read_text())["token"]
    offset.write_text(BACK)
    found.ended("the second run", subject.run(**_faked(offset)), 0)
    holder = json.loads((subject.store / "small" / "holder.json").read_text())
    found.expect(holder["token"] == before + 1, f"the token went from {before} to {holder['token']}")
    is_earlier = datetime.fromisoformat(holder["since"]) < datetime.now(UTC) - timedelta(days=300)
    found.expect(is_earlier, f"the clock was not set back: {holder['since']}")
    return found + bench.as_undisturbed(subject)
