"""From scored completions to one row per held-out prompt."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.evaluation.agreement import agreement_metrics
from tasks.evaluation.pass_at_k import pass_at_k

Row = Mapping[str, Any]

WORKING = re.compile(r"<think>\s*(?!</think>)\S.*?</think>", re.DOTALL)


def evaluation_rows(
    completions: Sequence[Row], rewards: Sequence[Row], greedy_rewards: Sequence[Row], *, ks: Sequence[int]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the evaluation table sorted by prompt id, and the metrics over them.

    A completion that the verifier could not score counts neither as right nor as wrong. accuracy: mean over prompts of
    the share of correct samples; pass_at_k: mean over prompts with at least k scored samples; greedy_accuracy: share of
    correct greedy completions; accuracy_given_working and working_share: over sampled completions with a filled
    <think> block. The agreement of verifier and reward model is ``agreement_metrics``. Means of nothing are left out.
    """
    by_prompt: dict[str, list[Row]] = {}
    for row in rewards:
        by_prompt.setdefault(row["prompt_id"], []).append(row)
    greedy = {row["prompt_id"]: row["is_correct"] for row in greedy_rewards}
    rows = []
    for prompt_id in sorted(by_prompt):
        scored = [row for row in by_prompt[prompt_id] if row["is_correct"] is not None]
        model = [row["reward_model_reward"] for row in by_prompt[prompt_id] if row["reward_model_reward"] is not None]
        correct = sum(row["is_correct"] for row in scored)
        rows.append(
            {
                "prompt_id": prompt_id,
                "num_samples": len(by_prompt[prompt_id]),
                "num_scored": len(scored),
                "num_correct": correct,
                "pass_at_1": correct / len(scored) if scored else None,
                "greedy_correct": greedy.get(prompt_id),
                "reward_model_mean": sum(model) / len(model) if model else None,
            }
        )
    metrics = {
        "num_prompts": float(len(rows)),
        "num_unscored": float(sum(row["num_samples"] - row["num_scored"] for row in rows)),
        "num_greedy_unscored": float(sum(value is None for value in greedy.values())),
    }
    metrics |= _mean("accuracy", [row["pass_at_1"] for row in rows])
    metrics |= _mean("greedy_accuracy", [row["greedy_correct"] for row in rows])
    metrics |= _mean("reward_model_mean", [row["reward_model_mean"] for row in rows])
    for k in ks:
        enough = [row for row in rows if row["num_scored"] >= k]
        metrics |= _mean(f"pass_at_{k}", [pass_at_k(row["num_scored"], row["num_correct"], k) for row in enough])
    return rows, metrics | _working(completions, rewards) | agreement_metrics(completions, rewards)


def _working(completions: Sequence[Row], rewards: Sequence[Row]) -> dict[str, float]:
    shown = {
        (row["group_id"], row["sample_index"]): WORKING.search(row["text"] or "") is not None for row in completions
    }
    correct = [
        row["is_correct"]
        for row in rewards
        if row["is_correct"] is not None and shown[row["group_id"], row["sample_index"]]
    ]
    return _mean("working_share", list(shown.values())) | _mean("accuracy_given_working", correct)


def _mean(name: str, values: Sequence[float | bool | None]) -> dict[str, float]:
    known = [float(value) for value in values if value is not None]
    return {name: sum(known) / len(known)} if known else {}
