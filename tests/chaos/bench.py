"""What every experiment shares: a folder, a Prefect server, recipes, and the runs that nothing disturbed."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.comparing import broken, differing, snapshot
from tests.chaos.runs import Ended, Subject
from tests.integration.conftest import RECIPE

QUICKSTART = (
    "run", "quickstart", "--lineage", "small", "--iterations", "1",
    "--set", "num_steps=2", "--set", "policy.warm_start.num_updates=40", "--set", "prompts.source.num_prompts=400",
    "--set", "prompts.num_heldout=32", "--set", "rollout.prompts_per_step=16",
    "--set", "reward_model.num_initial_prompts=16",
)  # fmt: skip
"""The quick start's own engine, policy and settings, with two steps and fewer prompts: seconds instead of minutes."""


class Findings(list[str]):
    """What was not as expected; empty when everything was."""

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.append(otherwise)

    def ended(self, what: str, done: Ended, status: int, *words: str) -> None:
        """The run ended with this status and no orphan, and said these words."""
        self.expect(done.status == status, f"{what}: status {done.status}, not {status}: {done.said[-600:]}")
        self.expect(not done.orphans, f"{what}: processes that outlived it: {done.orphans}")
        self.expect("Traceback" not in done.said, f"{what}: a traceback: {done.said[-600:]}")
        for word in words:
            self.expect(word in done.said, f"{what}: did not say {word!r} but {done.said[-600:]!r}")


@dataclass(frozen=True)
class Straight:
    """A run that nothing disturbed: what came of it, how long it took, and how often it wrote."""

    snapshot: dict[str, Any]
    seconds: float
    num_writes: int
    num_bytes: int


class Bench:
    """One folder for all stores of a program; ``api`` is the address of its Prefect server."""

    def __init__(self, folder: Path, api: str) -> None:
        self.folder = folder
        self.api = api
        recipe = folder / "small.toml"
        recipe.write_text(RECIPE)
        self.scripted: tuple[str, ...] = ("run", str(recipe), "--iterations", "2")
        self.ranks = (
            "run", str(recipe), "--iterations", "1", "--set", "num_steps=1", "--set", "machine.num_processes=2",
        )  # fmt: skip
        self.quickstart = QUICKSTART

    def subject(self, name: str, arguments: tuple[str, ...] = (), **env: str) -> Subject:
        """A new store; its command is the scripted run's unless another is given."""
        store = self.folder / name
        store.mkdir()
        return Subject(store, arguments or self.scripted, {"PREFECT_API_URL": self.api, **env})

    def alone(self, name: str, arguments: tuple[str, ...] = ()) -> Subject:
        """A new store whose runs start a Prefect server of their own."""
        subject = self.subject(name, arguments)
        del subject.env["PREFECT_API_URL"]
        return subject

    @functools.cache  # noqa: B019  # one bench lives as long as the program
    def straight(self, arguments: tuple[str, ...]) -> Straight:
        """The undisturbed run of a command, made once."""
        number = len(list(self.folder.glob("straight-*[0-9]")))
        subject = self.subject(f"straight-{number}", arguments)
        count = self.folder / f"writes-{number}"
        done = subject.run(CHAOS_COUNT=str(count))
        if done.status != 0 or (wrong := broken(subject.store, "small")) or done.orphans:
            raise SystemExit(f"the undisturbed run failed: {done.said[-2000:]} {done.orphans or wrong}")
        size = sum(path.stat().st_size for path in subject.store.rglob("*") if path.is_file())
        print(f"undisturbed {' '.join(arguments[:2])}: {done.seconds:.1f} s", flush=True)
        return Straight(snapshot(subject.store, "small"), done.seconds, int(count.read_text()), size)

    def is_finished(self, subject: Subject) -> bool:
        """Whether all that was asked is recorded and the request closed: the same command would ask for further iterations."""
        folder = subject.store / "small"
        committed = self.straight(subject.arguments).snapshot["committed"]
        records = [name for name, said in committed.items() if said == "record"]
        return not (folder / "request.json").exists() and all((folder / name).is_dir() for name in records)

    def as_undisturbed(self, subject: Subject, *, num_set_aside: int = 0) -> list[str]:
        """What differs between a store and the undisturbed run of its command; empty when nothing does."""
        straight = self.straight(subject.arguments)
        try:
            found = snapshot(subject.store, "small")
        except OSError as error:
            return [f"{subject.store.name}: {error}"]
        return differing(straight.snapshot, found) + broken(subject.store, "small", allow_set_aside=num_set_aside)
