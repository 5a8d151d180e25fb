"""What every kind of label is made from: the scored completions of each group, without duplicates."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Scored = tuple[Row, float]


def scored_groups(completions: Sequence[Row], rewards: Sequence[Row], column: str) -> dict[str, list[Scored]]:
    """Completions with the value of ``column``, by group, joined by (group, sample); rows where it is None are left out.

    Raises:
        ValueError: a (group, sample) comes twice in a table, has a reward but no completion, or has a value that is
            not a finite number.
    """
    by_key = {(row["group_id"], row["sample_index"]): row for row in completions}
    if len(by_key) < len(completions):
        raise ValueError(f"{len(completions) - len(by_key)} completions repeat the (group, sample) of another")
    groups: dict[str, list[Scored]] = {}
    seen: set[tuple[str, int]] = set()
    for row in rewards:
        key, value = (row["group_id"], row["sample_index"]), row[column]
        if key in seen or key not in by_key:
            fault = "comes twice" if key in seen else "has no completion"
            raise ValueError(f"the reward of group {key[0]}, sample {key[1]} {fault}: the tables are of different runs")
        seen.add(key)
        if value is None:
            continue
        if not math.isfinite(value):
            raise ValueError(f"{column} of group {key[0]}, sample {key[1]} is {value}; an unscored row is None")
        groups.setdefault(key[0], []).append((by_key[key], float(value)))
    return groups


def distinct(members: Sequence[Scored]) -> tuple[list[Scored], int]:
    """One member per distinct completion, and how many were dropped because equal ones have different values."""
    by_ids: dict[tuple[int, ...], list[Scored]] = {}
    for member in members:
        by_ids.setdefault(tuple(member[0]["completion_token_ids"]), []).append(member)
    kept, dropped = [], 0
    for same in by_ids.values():
        if len({value for _, value in same}) > 1:
            dropped += len(same)
        else:
            kept.append(min(same, key=lambda member: int(member[0]["sample_index"])))
    return kept, dropped


def key_columns(
    completion: Row, samples: Sequence[int], prompt_keys: Mapping[str, str], origin_iteration: int
) -> dict[str, Any]:
    """The columns that every label begins with; ``samples`` are the indices of the completions that it is about."""
    name = ":".join(str(part) for part in (origin_iteration, completion["group_id"], *samples))
    return {
        "label_id": hashlib.sha256(name.encode()).hexdigest()[:24],
        "prompt_id": completion["prompt_id"],
        "prompt_key": prompt_keys[completion["prompt_id"]],
        "group_id": completion["group_id"],
        "prompt_token_ids": completion["prompt_token_ids"],
        "origin_iteration": origin_iteration,
    }
