"""Three iterations as the store records them: one guarded and rolled back, one refused reward model, one decision by hand."""

from typing import Any


def ref(role: str, version: int) -> dict[str, Any]:
    return {"uri": f"/s/{role}-{version}", "digest": f"{role[0]}{version}" * 8, "role": role, "version": str(version)}


def table(name: str, iteration: int, num_rows: int = 8) -> dict[str, Any]:
    return {"uri": f"/s/{name}-{iteration}", "digest": f"{name[0]}{iteration}" * 8, "num_rows": num_rows}


def record(iteration: int, **changes: Any) -> dict[str, Any]:
    names = ("labels", "reward_training", "evaluation", *(("prompts", "anchor") if iteration == 0 else ()))
    return {
        "iteration": iteration,
        "policy": ref("policy", iteration + 1),
        "reference": ref("policy", max(iteration, 1)),
        "reward": ref("reward", iteration + 1),
        "champion": ref("policy", iteration + 1),
        "tables": {name: table(name, iteration) for name in names},
        "metrics": {"evaluation/accuracy": 0.25 * (iteration + 1), "replay/num_replayed": 2.0 * bool(iteration)},
        **changes,
    }


RECORDS = [
    record(0),
    record(
        1, reward=ref("reward", 1), refused_reward=ref("reward", 2), reward_promotion="refused: -0.2 on the anchor set"
    ),
    record(
        2,
        reward=ref("reward", 3),
        champion=ref("policy", 2),
        promotion="kept: 0.1 worse",
        alarm="over-optimisation",
        guards=("kl 0.5 above 0.1",),
        rolled_back_to=ref("policy", 2),
    ),
]
DECISIONS = [
    {
        "kind": "promote",
        "policy": ref("policy", 1),
        "reward": None,
        "after_iteration": 2,
        "why": "<b>safer</b>",
        "by": "kim",
        "at": "2026-12-01T00:00:00+00:00",
    }
]
STANDING = [*RECORDS[:2], {**RECORDS[2], "champion": ref("policy", 1)}]
STEPS = {
    number: {name: [table(name, number), table(name, 10 + number)] for name in ("completions", "rewards", "samples")}
    for number in (1, 2)
}
