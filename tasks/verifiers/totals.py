"""From verdicts to rows of the rewards table."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.verdict import ScoreItem, Verdict, failed, scored, unscored

Row = Mapping[str, Any]
CORRECT = 1.0
FAILED = ("error", "timeout")


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
        )
        for row in completions
    ]


def combine(verdicts: Mapping[str, Verdict], weights: Mapping[str, float]) -> float | None:
    """The weighted sum of one row's sources.

    A source with weight 0 is only recorded. One that failed takes the row's reward away (a sum without it would compare
    unlike rows); one that does not apply is left out; without any scored source there is no reward, which is not 0.
    """
    counting = {name: verdict for name, verdict in verdicts.items() if weights[name] != 0}
    if any(verdict.status in FAILED for verdict in counting.values()):
        return None
    rewards = [weights[name] * verdict.reward for name, verdict in counting.items() if verdict.reward is not None]
    return math.fsum(rewards) if rewards else None


def reward_rows(
    completions: Sequence[Row],
    verdicts: Sequence[Sequence[Verdict]],
    model_scores: Sequence[float] | None,
    config: ScoringConfig,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the rewards table in the order of ``completions``, and their metrics.

    Args:
        verdicts: per row, one verdict per verifier of ``config``.
        model_scores: the reward model's log-odds per row; their sigmoid is the reward. None before there is a model.
    """
    if len(verdicts) != len(completions) or (model_scores is not None and len(model_scores) != len(completions)):
        raise ValueError(
            f"{len(completions)} completions, {len(verdicts)} rows of verdicts and model scores do not match"
        )
    weights = {verifier.name: verifier.weight for verifier in config.verifiers}
    weights["reward_model"] = config.reward_model_weight
    rows = []
    for index, completion in enumerate(completions):
        sources = {verifier.name: verdict for verifier, verdict in zip(config.verifiers, verdicts[index], strict=True)}
        sources["reward_model"] = _model_verdict(None if model_scores is None else model_scores[index])
        truth = sources[config.correctness].reward
        row = {
            "group_id": completion["group_id"],
            "prompt_id": completion["prompt_id"],
            "sample_index": completion["sample_index"],
            "reward": combine(sources, weights),
            "is_correct": None if truth is None else truth >= CORRECT,
            "step_rewards": None,
            "step_ends": None,
        }
        for name, verdict in sources.items():
            row |= {
                f"{name}_reward": verdict.reward,
                f"{name}_status": verdict.status,
                f"{name}_reason": verdict.reason,
            }
        rows.append(row)
    return rows, _metrics(rows, config)


def _model_verdict(score: float | None) -> Verdict:
    if score is None:
        return unscored("there is no reward model yet")
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


def _mean(name: str, values: Sequence[float | bool | None]) -> dict[str, float]:
    known = [float(value) for value in values if value is not None]
    return {name: math.fsum(known) / len(known)} if known else {}


def check_failures(metrics: Mapping[str, float], max_failed_share: float) -> None:
    """ValueError when a source failed on more than ``max_failed_share`` of the rows; names source and share."""
    for name, count in metrics.items():
        if name.startswith("num_") and name.endswith(FAILED) and count > max_failed_share * metrics["num_rows"]:
            raise ValueError(
                f"{name.removeprefix('num_')}: {count:.0f} of {metrics['num_rows']:.0f} rows, more than "
                f"scoring.max_failed_share {max_failed_share:g}; raise "
                "scoring.row_deadline_seconds, or raise the share"
            )
