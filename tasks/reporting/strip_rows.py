"""The rows of a version's strip, from the records of the iterations that led to it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tasks.reporting.strip import Row, Tile

Record = Mapping[str, Any]
MEASURES = {
    "policy": ("evaluation/accuracy", "accuracy"),
    "reward": ("reward_model/heldout_accuracy_after", "accuracy"),
}
"""Role -> the metric that its tile shows (a share), and what it is called there."""
WORDS = {"policy": "policy", "reward": "reward model"}


def rows_of(
    records: Sequence[Record],
    num_rollouts: Mapping[int, int],
    version_address: Callable[[Any, str], str],
    data_address: Callable[[int], str],
) -> list[Row]:
    """One row for every iteration after the first record: what it began with and what it sampled; then what the last made.

    Args:
        records: of consecutive iterations, with the decisions in force, oldest first; the last one made the version.
        num_rollouts: iteration -> its completions.
        version_address: of (role, version). data_address: of an iteration's completions.
    """
    made = _made(records)

    def tile(ref: Record) -> Tile:
        role, version = ref["role"], ref["version"]
        return Tile(f"{WORDS[role]} v{version}", made.get((role, version), "earlier"), version_address(role, version))

    rows = [
        Row(
            policy=tile(record["reference"]),
            data=_rollouts(record, num_rollouts, data_address),
            reward=tile(before["reward"]),
        )
        for before, record in pairwise(records)
    ]
    last = records[-1]
    return [
        *rows,
        Row(policy=tile(last["policy"]), data=None, reward=tile(last.get("refused_reward") or last["reward"])),
    ]


def _rollouts(record: Record, num_rollouts: Mapping[int, int], data_address: Callable[[int], str]) -> Tile:
    iteration = record["iteration"]
    mean = record["metrics"].get("reward_mean")
    said = f"{num_rollouts.get(iteration, 0)} rows" + ("" if mean is None else f" · reward {mean:.3f}")
    return Tile(f"rollouts {iteration}", said, data_address(iteration))


def _made(records: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(role, version) -> the iteration that made it, and what was measured there."""
    found: dict[tuple[str, str], str] = {}
    for record in records:
        for ref in (record["policy"], record.get("refused_reward") or record["reward"]):
            name, word = MEASURES[ref["role"]]
            value = record["metrics"].get(name)
            said = f"iteration {record['iteration']}" + ("" if value is None else f" · {word} {value:.3f}")
            found.setdefault((ref["role"], ref["version"]), said)
    return found
