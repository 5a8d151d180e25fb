"""Join completions with their rewards and give each an advantage."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.grpo.advantages import group_advantages
from tasks.grpo.config import AdvantageConfig

Row = Mapping[str, Any]

COPIED = (
    "group_id",
    "prompt_id",
    "sample_index",
    "prompt_token_ids",
    "completion_token_ids",
    "sampler_logprobs",
    "temperature",
    "policy_digest",
)


def build_samples(
    completions: Sequence[Row], rewards: Sequence[Row], config: AdvantageConfig
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the samples table, in the order of ``completions``, and their counts.

    Rows are joined by (group_id, sample_index), never by position. A completion without a reward, one that the engine
    aborted, an empty one, and (under ``truncated = "mask"``) a truncated one are masked: they leave the group's
    statistics, the loss and its denominator.

    Raises:
        ValueError: a completion without exactly one rewards row, or the other way round.
    """
    rewarded = _by_key(rewards, "rewards")
    if missing := set(_by_key(completions, "completions")) ^ set(rewarded):
        raise ValueError(f"completions and rewards do not match: {sorted(missing)[:3]} stand in one of them only")
    rows, values = [], []
    for completion in completions:
        reward = _reward(completion, rewarded[_key(completion)]["reward"], config)
        values.append(reward)
        rows.append({**{name: completion[name] for name in COPIED}, "reward": reward, "token_advantages": None})
    found = group_advantages(values, [row["group_id"] for row in rows], scale=config.scale, std_eps=config.std_eps)
    for row, advantage, is_scored, has_signal in zip(
        rows, found.advantages, found.is_scored, found.has_signal, strict=True
    ):
        row |= {"advantage": advantage, "is_masked": not is_scored, "has_signal": has_signal}
    return rows, _metrics(rows)


def _reward(completion: Row, reward: float | None, config: AdvantageConfig) -> float | None:
    if completion["finish_reason"] == "abort" or not completion["completion_token_ids"]:
        return None
    if not completion["is_truncated"] or config.truncated == "keep":
        return reward
    return None if config.truncated == "mask" else 0.0


def _key(row: Row) -> tuple[str, int]:
    return row["group_id"], row["sample_index"]


def _by_key(rows: Sequence[Row], table: str) -> dict[tuple[str, int], Row]:
    found = {_key(row): row for row in rows}
    if len(found) < len(rows):
        raise ValueError(f"{table} holds {len(rows) - len(found)} rows twice (same group_id and sample_index)")
    return found


def _metrics(rows: Sequence[Row]) -> dict[str, float]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    usable = [members for members in groups.values() if any(not row["is_masked"] for row in members)]
    no_signal = [members for members in usable if not any(row["has_signal"] for row in members)]
    metrics = {
        "num_samples": float(len(rows)),
        "num_masked": float(sum(row["is_masked"] for row in rows)),
        "num_groups": float(len(groups)),
        "num_no_signal_groups": float(len(no_signal)),
        "num_unusable_groups": float(len(groups) - len(usable)),
    }
    scored = [row["reward"] for row in rows if not row["is_masked"]]
    if scored:  # a mean of nothing is missing, not NaN
        metrics["reward_mean"] = sum(scored) / len(scored)
    return metrics
