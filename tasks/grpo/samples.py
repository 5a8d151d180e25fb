"""Join completions with their rewards and give each an advantage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from tasks.grpo.advantages import have_signal
from tasks.grpo.config import UpdateConfig
from tasks.grpo.critic import Critic, values_by_row
from tasks.grpo.estimators import ESTIMATORS, Advantage, Episode
from tasks.grpo.frozen import engine_logprobs, logprobs_by_row
from tasks.grpo.layouts import layout_for, share_attention
from tasks.grpo.sample_metrics import metrics_of
from tasks.grpo.shaping import kl_penalties, overlong_penalty
from tasks.runtime.precision import compute_dtype, in_precision

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


@dataclass(frozen=True)
class Models:
    """The models whose numbers the advantages need: ``policy`` (that sampled) and ``reference`` for a KL in the reward,
    ``critic`` for gae; None where they are not needed."""

    policy: PreTrainedModel | None = None
    reference: PreTrainedModel | None = None
    critic: Critic | None = None


def build_samples(
    completions: Sequence[Row],
    rewards: Sequence[Row],
    config: UpdateConfig,
    *,
    weights: Mapping[str, float],
    max_new_tokens: int,
    models: Models,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the samples table, in the order of ``completions``, and their counts.

    Rows are joined by (group_id, sample_index), never by position. A completion without a reward, one that the engine
    aborted, an empty one, (under ``truncated = "mask"``) a truncated one and (under dynamic sampling) one of a group
    without signal are masked: they leave the group's statistics, the loss and its denominator.

    Args:
        weights: of the reward sources that count, by name.
        max_new_tokens: the longest completion that sampling allows.

    Raises:
        ValueError: a completion without exactly one rewards row, or the other way round.
    """
    rewarded = _by_key(rewards, "rewards")
    if missing := set(_by_key(completions, "completions")) ^ set(rewarded):
        raise ValueError(f"completions and rewards do not match: {sorted(missing)[:3]} stand in one of them only")
    joined = [rewarded[_key(completion)] for completion in completions]
    rows = [_row(*pair, config, max_new_tokens) for pair in zip(completions, joined, strict=True)]
    usable = [index for index, row in enumerate(rows) if row["reward"] is not None]
    _ask_models(rows, usable, config, models)
    episodes = [_episode(rows[index], joined[index], config, weights) for index in usable]
    found = dict(zip(usable, ESTIMATORS[type(config.advantages)](episodes, config.advantages), strict=True))
    dropped = _without_signal(rows, joined, found, config)
    for index, row in enumerate(rows):
        advantage = found.get(index) or Advantage(0.0, has_signal=False)
        row |= {
            "advantage": advantage.outcome,
            "token_advantages": advantage.by_token,
            "returns": advantage.returns,
            "has_signal": advantage.has_signal,
            "is_masked": index not in found or row["group_id"] in dropped,
        }
    metrics = metrics_of(rows, dropped, config)
    for row in rows:
        del row["penalties"], row["is_zeroed"]  # on the way only
    return rows, metrics


def _row(completion: Row, rewarded: Row, config: UpdateConfig, max_new_tokens: int) -> dict[str, Any]:
    reward = _reward(completion, rewarded, config)
    penalty = overlong_penalty(len(completion["completion_token_ids"]), max_new_tokens, config.overlong)
    return {
        **{name: completion[name] for name in COPIED},
        "reward": None if reward is None else reward + penalty,
        "overlong_penalty": penalty,
        "reference_logprobs": None,
        "values": None,
        "penalties": None,
        "is_zeroed": completion["is_truncated"] and config.truncated == "zero",
    }


def _reward(completion: Row, rewarded: Row, config: UpdateConfig) -> float | None:
    if completion["finish_reason"] == "abort" or not completion["completion_token_ids"]:
        return None
    if config.advantages.kind == "process" and rewarded["step_rewards"] is None:
        return None
    if not completion["is_truncated"] or config.truncated == "keep" or rewarded["reward"] is None:
        return rewarded["reward"]  # type: ignore[no-any-return]
    return None if config.truncated == "mask" else 0.0


def _ask_models(rows: Sequence[dict[str, Any]], usable: Sequence[int], config: UpdateConfig, models: Models) -> None:
    """Fill in ``reference_logprobs``, ``penalties`` and ``values`` of the usable rows where the settings want them."""
    budget = config.micro_batch_tokens
    if config.kl.placement == "reward":
        assert models.reference is not None
        assert models.policy is not None
        layout = layout_for(models.policy, config.layout)
        said = {index: engine_logprobs(rows[index]) for index in usable}
        unknown = [index for index in usable if not bool(torch.isfinite(said[index]).all())]
        device = str(models.policy.device)
        share_attention(models.policy, models.reference)
        with in_precision(compute_dtype(config.precision, device), device):
            before = logprobs_by_row(models.policy, rows, unknown, budget, layout)
            under_reference = logprobs_by_row(models.reference, rows, usable, budget, layout)
        for index, reference_T in under_reference.items():
            policy_T = torch.where(torch.isfinite(said[index]), said[index], before.get(index, said[index]))
            rows[index]["reference_logprobs"] = reference_T.tolist()
            rows[index]["penalties"] = kl_penalties(policy_T, reference_T, config.kl)
    if models.critic is not None:
        for index, values_T in values_by_row(models.critic, rows, usable, budget).items():
            rows[index]["values"] = values_T.tolist()


def _episode(row: Row, rewarded: Row, config: UpdateConfig, weights: Mapping[str, float]) -> Episode:
    is_zeroed = row["is_zeroed"]
    sources = {name: rewarded[f"{name}_reward"] for name in weights}
    if is_zeroed:
        sources = {name: None if value is None else 0.0 for name, value in sources.items()}
    step_rewards = rewarded["step_rewards"] or ()
    if config.overlong.kind == "soft":
        sources["overlong"] = row["overlong_penalty"]
        weights = {**weights, "overlong": 1.0}
    return Episode(
        group_id=row["group_id"],
        num_tokens=len(row["completion_token_ids"]),
        reward=row["reward"],
        is_correct=False if is_zeroed else rewarded["is_correct"],
        sources=sources,
        weights=weights,
        step_rewards=[0.0] * len(step_rewards) if is_zeroed else step_rewards,
        step_ends=rewarded["step_ends"] or (),
        penalties=row["penalties"],
        values=row["values"],
    )


def _without_signal(
    rows: Sequence[Row], joined: Sequence[Row], found: Mapping[int, Advantage], config: UpdateConfig
) -> set[str]:
    """The groups that dynamic sampling takes out; none without it."""
    if config.group_filter.kind != "dynamic":
        return set()
    members: dict[str, list[int]] = {row["group_id"]: [] for row in rows}
    for index in found:
        members[rows[index]["group_id"]].append(index)
    if config.advantages.kind == "process":
        return {group for group, indices in members.items() if not any(found[index].has_signal for index in indices)}
    if config.group_filter.by == "correctness":
        return {
            group
            for group, indices in members.items()
            if len({bool(joined[index]["is_correct"]) for index in indices}) < 2
        }
    # Before the overlong punishment: a group of wrong answers of different lengths has nothing to teach but brevity.
    return {
        group
        for group, indices in members.items()
        if not have_signal([rows[index]["reward"] - rows[index]["overlong_penalty"] for index in indices])
    }


def _key(row: Row) -> tuple[str, int]:
    return row["group_id"], row["sample_index"]


def _by_key(rows: Sequence[Row], table: str) -> dict[tuple[str, int], Row]:
    found = {_key(row): row for row in rows}
    if len(found) < len(rows):
        raise ValueError(f"{table} holds {len(rows) - len(found)} rows twice (same group_id and sample_index)")
    return found
