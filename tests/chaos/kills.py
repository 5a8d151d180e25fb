"""Campaigns of `kill -9`: one run is killed, started again with the same command, killed again, until it comes to its end."""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import processes
from tests.chaos.bench import Bench, Findings
from tests.chaos.runs import Ended, Running, Subject
from tests.chaos.servers import Server

LONGEST_CHAIN = 8
"""Kills of one run before it is left to finish."""
MAX_RUNS_PER_KILL = 3
WENT_ON, FAILED, DIED = "went on", "stopped with one line", "died"


@dataclass(frozen=True)
class Kill:
    """One kill: of what, when (seconds after the start, or "write N"), and what the run did then."""

    target: str
    instant: str
    outcome: str


Disturb = Callable[[Subject], tuple[Ended, "Kill | None"]]
"""Starts the run of a store, kills something on the way, waits for the end; None when the run ended first."""


@dataclass
class Campaign:
    """The kills of one target, and what was not as expected after them."""

    target: str
    kills: list[Kill] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    num_runs: int = 0


def chains(
    bench: Bench, campaign: Campaign, new_store: Callable[[str], Subject], num_kills: int, disturb: Disturb
) -> Campaign:
    """Make ``num_kills`` kills in runs of one command, and compare what each run came to with the undisturbed one.

    Args:
        new_store: gives a new store by its name, with the command that runs over it.
    """
    while len(campaign.kills) < num_kills and campaign.num_runs < MAX_RUNS_PER_KILL * num_kills:
        subject = new_store(f"{campaign.target.replace(' ', '-')}-{campaign.num_runs}")
        campaign.num_runs += 1
        _chain(bench, campaign, subject, num_kills, disturb)
        campaign.findings += [f"{subject.store.name}: {each}" for each in bench.as_undisturbed(subject)]
    missing = num_kills - len(campaign.kills)
    campaign.findings.expect(missing == 0, f"{missing} kills found nothing to kill")
    return campaign


def _chain(bench: Bench, campaign: Campaign, subject: Subject, num_kills: int, disturb: Disturb) -> None:
    for _ in range(LONGEST_CHAIN):
        if len(campaign.kills) == num_kills:
            break
        done, kill = disturb(subject)
        campaign.findings += [f"{subject.store.name}: orphan {each}" for each in done.orphans]
        if kill is not None:
            campaign.kills.append(kill)
            campaign.findings.expect(kill.outcome != "", f"{kill}: status {done.status}: {done.said[-600:]}")
        if done.status == 0 or bench.is_finished(subject):  # killed on its way out
            return
        campaign.findings.expect(kill is not None, f"{subject.store.name} failed by itself: {done.said[-600:]}")
    campaign.findings.ended(f"{subject.store.name}, at last", subject.run(), 0)


def outcome_of(done: Ended) -> str:
    """What a run did whose helper was killed; "" for what it must never do (a traceback, a status of its own, a hang)."""
    if done.status == -signal.SIGKILL and "it hung" not in done.said:
        return DIED
    if done.status == 0:
        return WENT_ON
    return FAILED if done.status == 1 and done.error and "Traceback" not in done.said else ""


def driver(bench: Bench, arguments: tuple[str, ...], rng: random.Random) -> Disturb:
    """Kill the run itself: by turns at a random second of the undisturbed run's time, and at a random write."""
    straight, turn = bench.straight(arguments), iter(range(1 << 30))

    def disturb(subject: Subject) -> tuple[Ended, Kill | None]:
        if next(turn) % 2:
            number = rng.randint(1, max(1, straight.num_writes // 2))
            done = subject.run(CHAOS_AT_WRITE=str(number))
            was_killed, instant = done.status == -signal.SIGKILL, f"write {number}"
        else:
            seconds = rng.uniform(0.0, straight.seconds)
            running = subject.start()
            was_killed, instant = running.sleep_until(seconds) and running.send(signal.SIGKILL), f"{seconds:.2f} s"
            done = running.end()
        return done, Kill("driver", instant, outcome_of(done)) if was_killed else None

    return disturb


def child(bench: Bench, arguments: tuple[str, ...], rng: random.Random, target: str, words: tuple[str, ...]) -> Disturb:
    """Kill one of the run's children, at a random second from the first one's birth on.

    ``words``: one of them stands in the command line of what is killed.
    """
    seconds_left = bench.straight(arguments).seconds / 2

    def disturb(subject: Subject) -> tuple[Ended, Kill | None]:
        running = subject.start()
        wait = rng.uniform(0.0, seconds_left)
        first = _first_child(running, words)
        if first is not None:
            running.sleep_until(time.monotonic() - running.began + wait)
        alive = _children(running, words) if running.process.poll() is None else []
        hit = rng.choice(alive) if alive else None
        was_killed = hit is not None and processes.kill(hit, signal.SIGKILL)
        instant = f"{time.monotonic() - running.began:.2f} s"
        done = running.end()
        return done, Kill(target, instant, outcome_of(done)) if was_killed else None

    return disturb


def _children(running: Running, words: tuple[str, ...]) -> list[processes.Process]:
    return [each for each in running.children() if any(word in processes.command_of(each) for word in words)]


def _first_child(running: Running, words: tuple[str, ...]) -> processes.Process | None:
    while running.process.poll() is None:
        if found := _children(running, words):
            return found[0]
        time.sleep(0.05)
    return None


def server(bench: Bench, arguments: tuple[str, ...], rng: random.Random, killed: Server) -> Disturb:
    """Kill a server that the run reports to, at a random second; by turns it comes back at once or when the run has ended."""
    seconds_straight, turn = bench.straight(arguments).seconds, iter(range(1 << 30))

    def disturb(subject: Subject) -> tuple[Ended, Kill | None]:
        seconds = rng.uniform(seconds_straight / 4, seconds_straight)
        running = subject.start()
        was_killed = running.sleep_until(seconds) and killed.kill() > 0
        comes_back = next(turn) % 2 == 0
        if was_killed and comes_back:
            killed.start()
        done = running.end()
        if was_killed and not comes_back:
            killed.start()
        return done, Kill(f"{killed.name} server", f"{seconds:.2f} s", outcome_of(done)) if was_killed else None

    return disturb


def mlflow_server(bench: Bench, arguments: tuple[str, ...], rng: random.Random) -> Disturb:
    """As ``server``, with an MLflow server over each store; in the end what MLflow missed is delivered."""
    bench.straight(arguments)
    servers: dict[Path, Disturb] = {}

    def disturb(subject: Subject) -> tuple[Ended, Kill | None]:
        if subject.store not in servers:
            here = Server("mlflow", subject.store)
            here.start()
            subject.env["MLFLOW_TRACKING_URI"] = here.url
            servers[subject.store] = server(bench, arguments, rng, here)
        done, kill = servers[subject.store](subject)
        if done.status == 0:
            subject.run("repair-lineage", "small")
        return done, kill

    return disturb
