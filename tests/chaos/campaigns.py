"""What is killed, how often, and in runs of what."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos import kills
from tests.chaos.bench import Bench
from tests.chaos.kills import Campaign, Disturb
from tests.chaos.runs import Subject
from tests.chaos.servers import Server

VERIFIER, RANK, OWNED_SERVER = ("tasks.verifiers.worker",), ("tasks.runtime.launcher", "rank"), ("uvicorn",)


@dataclass(frozen=True)
class Plan:
    """``num_kills`` of one target in runs of ``command`` (a command of the bench)."""

    num_kills: int
    command: str
    disturb: Callable[[Bench, tuple[str, ...], random.Random, Server], Disturb]
    new_store: Callable[[Bench, str, tuple[str, ...]], Subject] = Bench.subject


CAMPAIGNS: dict[str, Plan] = {
    "driver": Plan(36, "scripted", lambda bench, command, rng, _: kills.driver(bench, command, rng)),
    "driver of a quick start": Plan(6, "quickstart", lambda bench, command, rng, _: kills.driver(bench, command, rng)),
    "driver with its own server": Plan(
        3, "scripted", lambda bench, command, rng, _: kills.driver(bench, command, rng), Bench.alone
    ),
    "verifier process": Plan(
        8, "scripted", lambda bench, command, rng, _: kills.child(bench, command, rng, "verifier process", VERIFIER)
    ),
    "rank": Plan(4, "ranks", lambda bench, command, rng, _: kills.child(bench, command, rng, "rank", RANK)),
    "Prefect server of the run": Plan(
        3,
        "scripted",
        lambda bench, command, rng, _: kills.child(bench, command, rng, "Prefect server of the run", OWNED_SERVER),
        Bench.alone,
    ),
    "Prefect server": Plan(4, "scripted", kills.server),
    "MLflow server": Plan(4, "scripted", lambda bench, command, rng, _: kills.mlflow_server(bench, command, rng)),
}


def made(bench: Bench, name: str, rng: random.Random, prefect: Server, scale: float) -> Campaign:
    """Make the kills of a campaign, at least one."""
    plan = CAMPAIGNS[name]
    command = getattr(bench, plan.command)
    disturb = plan.disturb(bench, command, rng, prefect)
    num_kills = max(1, round(plan.num_kills * scale))
    return kills.chains(bench, Campaign(name), lambda store: plan.new_store(bench, store, command), num_kills, disturb)
