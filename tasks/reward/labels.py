"""Preference pairs from verified completions."""

import hashlib
import itertools
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
    """
    by_key = {(row["group_id"], row["sample_index"]): row for row in completions}
    groups: dict[str, list[Scored]] = {}
    for row in rewards:
        reward = row[f"{source}_reward"]
        if reward is not None:
            groups.setdefault(row["group_id"], []).append((by_key[row["group_id"], row["sample_index"]], reward))
    pairs: list[dict[str, Any]] = []
    contradicting = 0
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
    return pairs, {
        "num_pairs": float(len(pairs)),
        "num_groups": float(len(groups)),
        "num_contradicting_completions": float(contradicting),
    }


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
