"""Preference pairs from verified completions."""

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.reward.config import PairsConfig
from tasks.values.seeds import derive_seed

Row = Mapping[str, Any]
Scored = tuple[Row, float]


def pairs_from_rows(
    completions: Sequence[Row],
    rewards: Sequence[Row],
    prompt_keys: Mapping[str, str],
    config: PairsConfig,
    *,
    source: str,
    origin_iteration: int,
    seed: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the pairs table: within each group, a completion with a higher reward of ``source`` over one with a lower.

    Ties and differences below ``min_margin`` make no pair; rows that the source did not score take no part; of equal
    completions with equal rewards one is kept; equal completions with different rewards are all dropped (the scorer
    contradicts itself). At most ``max_pairs_per_group`` pairs per group, chosen by hash of (seed, pair).

    Raises:
        ValueError: a (group, sample) comes twice in a table, has a reward but no completion, or has a reward that is
            not a finite number.
    """
    groups = _scored_groups(completions, rewards, f"{source}_reward")
    pairs: list[dict[str, Any]] = []
    contradicting = 0
    over_cap = 0
    for group_id in sorted(groups):
        distinct, dropped = _distinct(groups[group_id])
        contradicting += dropped
        candidates = [
            _pair(better, worse, prompt_keys, origin_iteration)
            for better, worse in itertools.permutations(distinct, 2)
            # 0.35 - 0.3 is 0.04999999999999999: the binary noise goes first.
            if round(better[1] - worse[1], 9) >= config.min_margin
        ]
        candidates.sort(key=lambda pair: derive_seed(seed, pair["pair_id"]))
        pairs.extend(candidates[: config.max_pairs_per_group])
        over_cap += max(0, len(candidates) - config.max_pairs_per_group)
    return pairs, {
        "num_pairs": float(len(pairs)),
        "num_groups": float(len(groups)),
        "num_contradicting_completions": float(contradicting),
        "num_unscored": float(len(rewards) - sum(map(len, groups.values()))),
        "num_pairs_over_cap": float(over_cap),
    }


def _scored_groups(completions: Sequence[Row], rewards: Sequence[Row], column: str) -> dict[str, list[Scored]]:
    """Completions with their reward, by group, joined by (group, sample)."""
    by_key = {(row["group_id"], row["sample_index"]): row for row in completions}
    if len(by_key) < len(completions):
        raise ValueError(f"{len(completions) - len(by_key)} completions repeat the (group, sample) of another")
    groups: dict[str, list[Scored]] = {}
    seen: set[tuple[str, int]] = set()
    for row in rewards:
        key, reward = (row["group_id"], row["sample_index"]), row[column]
        if key in seen or key not in by_key:
            fault = "comes twice" if key in seen else "has no completion"
            raise ValueError(f"the reward of group {key[0]}, sample {key[1]} {fault}: the tables are of different runs")
        seen.add(key)
        if reward is None:
            continue
        if not math.isfinite(reward):
            raise ValueError(f"{column} of group {key[0]}, sample {key[1]} is {reward}; an unscored row is None")
        groups.setdefault(key[0], []).append((by_key[key], reward))
    return groups


def _distinct(members: Sequence[Scored]) -> tuple[list[Scored], int]:
    """One member per distinct completion, and how many were dropped because equal ones have different rewards."""
    by_ids: dict[tuple[int, ...], list[Scored]] = {}
    for member in members:
        by_ids.setdefault(tuple(member[0]["completion_token_ids"]), []).append(member)
    kept, dropped = [], 0
    for same in by_ids.values():
        if len({reward for _, reward in same}) > 1:
            dropped += len(same)
        else:
            kept.append(min(same, key=lambda member: int(member[0]["sample_index"])))
    return kept, dropped


def _pair(better: Scored, worse: Scored, prompt_keys: Mapping[str, str], origin_iteration: int) -> dict[str, Any]:
    (chosen, chosen_reward), (rejected, rejected_reward) = better, worse
    name = f"{origin_iteration}:{chosen['group_id']}:{chosen['sample_index']}:{rejected['sample_index']}"
    return {
        "pair_id": hashlib.sha256(name.encode()).hexdigest()[:24],
        "prompt_id": chosen["prompt_id"],
        "prompt_key": prompt_keys[chosen["prompt_id"]],
        "group_id": chosen["group_id"],
        "prompt_token_ids": chosen["prompt_token_ids"],
        "chosen_token_ids": chosen["completion_token_ids"],
        "rejected_token_ids": rejected["completion_token_ids"],
        "chosen_reward": chosen_reward,
        "rejected_reward": rejected_reward,
        "origin_iteration": origin_iteration,
    }
