"""From verdicts to rows of the rewards table."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.verifiers.config import MODEL, ScoringConfig
from tasks.verifiers.failures import FAILED
from tasks.verifiers.steps import PrefixLength, StepRewards, on_tokens
from tasks.verifiers.verdict import ScoreItem, Verdict, failed, scored, unscored

Row = Mapping[str, Any]
PrefixLengths = Callable[[Sequence[int]], PrefixLength]
"""Token ids of a completion -> characters of the text that its first i tokens make."""

CORRECT = 1.0


def items_of(completions: Sequence[Row], selection: Sequence[Row]) -> list[ScoreItem]:
    """What the verifiers see of each completion, joined with its prompt by group id."""
    prompts = {row["group_id"]: row for row in selection}
    return [
        ScoreItem(
            prompt=prompts[row["group_id"]]["prompt"],
            answer=prompts[row["group_id"]]["answer"],
            completion=row["text"],
            metadata=json.loads(prompts[row["group_id"]]["metadata"]),
            is_truncated=row["is_truncated"],
            is_chat=prompts[row["group_id"]]["is_chat"],
            group_id=row["group_id"],
            completion_token_ids=tuple(row["completion_token_ids"]),
        )
        for row in completions
    ]


def combine(verdicts: Mapping[str, Verdict], weights: Mapping[str, float]) -> float | None:
    """The weighted sum of one row's sources.

    A source with weight 0, or none in ``weights``, is only recorded. One that failed takes the row's reward away (a sum without it would compare
    unlike rows); one that does not apply is left out; without any scored source there is no reward, which is not 0.
    """
    counting = {name: verdict for name, verdict in verdicts.items() if weights.get(name, 0.0) != 0}
    if any(verdict.status in FAILED for verdict in counting.values()):
        return None
    rewards = [weights[name] * verdict.reward for name, verdict in counting.items() if verdict.reward is not None]
    return math.fsum(rewards) if rewards else None


def reward_rows(
    completions: Sequence[Row],
    verdicts: Sequence[Sequence[Verdict]],
    model_verdicts: Sequence[Verdict] | None,
    config: ScoringConfig,
    prefix_lengths: PrefixLengths | None = None,
    model_steps: Sequence[StepRewards | None] | None = None,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the rewards table in the order of ``completions``, and their metrics.

    Args:
        verdicts: per row, one verdict per verifier of ``config``.
        model_verdicts: the reward model's, per row (``of_log_odds``, or those of a process reward model). None before
            there is a model.
        prefix_lengths: finds the tokens at which steps end; needed when ``config.process`` names a verifier.
        model_steps: per row, the steps of a process reward model; read when ``config.process`` names the reward model.
            None before there is one: no row has steps then.
    """
    if any(each is not None and len(each) != len(completions) for each in (verdicts, model_verdicts, model_steps)):
        raise ValueError(
            f"{len(completions)} completions, {len(verdicts)} rows of verdicts and what the models gave do not match"
        )
    steps: Sequence[StepRewards | None] | None
    if config.process == MODEL:
        steps, num_merged = model_steps or [None] * len(completions), 0
    else:
        steps, num_merged = _verifier_steps(completions, verdicts, config, prefix_lengths)
    rows = []
    for index, completion in enumerate(completions):
        sources = {verifier.name: verdict for verifier, verdict in zip(config.verifiers, verdicts[index], strict=True)}
        sources[MODEL] = unscored("there is no reward model yet") if model_verdicts is None else model_verdicts[index]
        truth = sources[config.correctness].reward
        row = {
            "group_id": completion["group_id"],
            "prompt_id": completion["prompt_id"],
            "sample_index": completion["sample_index"],
            "reward": combine(sources, config.weights),
            "is_correct": None if truth is None else truth >= CORRECT,
            **_step_columns(None if steps is None else steps[index], completion),
        }
        for name, verdict in sources.items():
            row |= {
                f"{name}_reward": verdict.reward,
                f"{name}_status": verdict.status,
                f"{name}_reason": verdict.reason,
            }
        rows.append(row)
    metrics = _metrics(rows, config) | _counts(verdicts, config)
    if steps is not None:
        metrics |= _step_metrics(rows) | {"num_merged_steps": float(num_merged)}
    return rows, metrics


def _verifier_steps(
    completions: Sequence[Row],
    verdicts: Sequence[Sequence[Verdict]],
    config: ScoringConfig,
    prefix_lengths: PrefixLengths | None,
) -> tuple[list[StepRewards | None] | None, int]:
    """The steps of the verifier that supervises the process, per row (None where it gave none), and how many were merged;
    None when no verifier does."""
    if config.process is None:
        return None, 0
    if prefix_lengths is None:
        raise ValueError(f"process {config.process!r} gives steps, but nothing says which tokens they end at")
    position = [verifier.name for verifier in config.verifiers].index(config.process)
    placed: list[StepRewards | None] = []
    num_merged = 0
    for completion, given in zip(completions, verdicts, strict=True):
        steps, ids = given[position].steps, completion["completion_token_ids"]  # only a scored verdict has steps
        found, merged = on_tokens(steps, len(ids), prefix_lengths(ids)) if steps and ids else (None, 0)
        placed.append(found)
        num_merged += merged
    return placed, num_merged


def _step_columns(steps: StepRewards | None, completion: Row) -> dict[str, Any]:
    """``step_rewards`` and ``step_ends`` of one row, None without steps."""
    if steps is None:
        return {"step_rewards": None, "step_ends": None}
    steps.check(len(completion["completion_token_ids"]))
    return {"step_rewards": list(steps.rewards), "step_ends": list(steps.ends)}


def of_log_odds(score: float) -> Verdict:
    """The verdict of an outcome reward model: its log-odds as a probability; an ``error`` when they are not finite."""
    if not math.isfinite(score):
        return failed(f"the reward model gave {score}")
    bounded = max(
        -700.0, min(700.0, score)
    )  # exp(-700) is still a float64; the sigmoid is 0 or 1 there to the last digit
    return scored(1.0 / (1.0 + math.exp(-bounded)))


def _metrics(rows: Sequence[Row], config: ScoringConfig) -> dict[str, float]:
    metrics = {"num_rows": float(len(rows)), "num_without_reward": float(sum(row["reward"] is None for row in rows))}
    for source in config.sources:
        for status in ("unscored", *FAILED):
            metrics[f"num_{source}_{status}"] = float(sum(row[f"{source}_status"] == status for row in rows))
        metrics |= _mean(f"{source}_mean", [row[f"{source}_reward"] for row in rows])
    metrics |= _mean("reward_mean", [row["reward"] for row in rows])
    return metrics | _mean("accuracy", [row["is_correct"] for row in rows])


def _counts(verdicts: Sequence[Sequence[Verdict]], config: ScoringConfig) -> dict[str, float]:
    """What the verdicts counted, summed over the rows as ``{source}_{name}``."""
    values: dict[str, list[float]] = {}
    for row in verdicts:
        for verifier, verdict in zip(config.verifiers, row, strict=True):
            for name, value in verdict.counts:
                values.setdefault(f"{verifier.name}_{name}", []).append(value)
    return {name: math.fsum(each) for name, each in values.items()}


def _step_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Steps per row that has any, and the mean over all steps."""
    found = [row["step_rewards"] for row in rows if row["step_rewards"] is not None]
    metrics = {"num_rows_without_steps": float(len(rows) - len(found))}
    metrics |= _mean("num_steps_mean", [len(rewards) for rewards in found])
    return metrics | _mean("step_reward_mean", [reward for rewards in found for reward in rewards])


def _mean(name: str, values: Sequence[float | bool | None]) -> dict[str, float]:
    known = [float(value) for value in values if value is not None]
    return {name: math.fsum(known) / len(known)} if known else {}
