"""Step labels from continuations: how often the policy gets to the right answer from there."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.reward.step_kinds import StepsConfig
from tasks.reward.step_plan import Plan, Traced

Row = Mapping[str, Any]
Verdicts = Mapping[str, Sequence[bool | None]]
"""For each prefix, whether its continuations are correct; None for one that was not scored."""


def step_label_rows(
    plan: Plan,
    rewards: Sequence[Row],
    continued: Sequence[Row],
    prompt_keys: Mapping[str, str],
    config: StepsConfig,
    *,
    origin_iteration: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the step_labels table: one per completion that has a labelled step.

    The label of a step is the mean over the scored continuations of the prefix that ends with it (or 1 when any is
    correct, else 0); the last step's is whether the completion itself is correct. A continuation without a verdict is in
    neither numerator nor denominator, and a step without any scored one is left out of the row, which is not 0.

    Args:
        rewards: of the completions, at least those that are traced.
        continued: rewards of the continuations, ``group_id`` being the prefix.
        prompt_keys: by prompt id.

    Raises:
        ValueError: a traced completion has no row in ``rewards``, or a continuation belongs to no prefix of the plan.
    Source: Math-Shepherd, arXiv:2312.08935, soft and hard estimation.
    """
    own = {(row["group_id"], row["sample_index"]): row["is_correct"] for row in rewards}
    verdicts: dict[str, list[bool | None]] = {prefix: [] for prefix in plan.prefixes}
    for row in continued:
        if row["group_id"] not in verdicts:
            raise ValueError(f"continuation {row['group_id']} belongs to no prefix: the tables are of different runs")
        verdicts[row["group_id"]].append(row["is_correct"])
    rows: list[dict[str, Any]] = []
    for traced in plan.traced:
        key = (traced.completion["group_id"], traced.completion["sample_index"])
        if key not in own:
            raise ValueError(f"group {key[0]}, sample {key[1]} has no reward: the tables are of different runs")
        steps = _labelled(traced, own[key], verdicts, config)
        if steps:
            rows.append(_row(traced, steps, verdicts, prompt_keys, origin_iteration))
    return rows, plan.metrics | _metrics(rows, plan, verdicts)


def estimate(verdicts: Sequence[bool | None], config: StepsConfig) -> float | None:
    """The label that these verdicts make; None without any that was scored.

        soft: y = (correct continuations) / (scored continuations)      hard: y = 1 if any is correct, else 0

    Source: Math-Shepherd, arXiv:2312.08935, soft and hard estimation.
    """
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return None
    return float(any(known)) if config.labels == "hard" else math.fsum(known) / len(known)


def _labelled(
    traced: Traced, is_correct: bool | None, verdicts: Verdicts, config: StepsConfig
) -> list[tuple[int, float]]:
    """(end, label) of the steps that have one."""
    found = (
        (end, estimate([is_correct] if prefix is None else verdicts[prefix], config))
        for end, prefix in zip(traced.ends, traced.prefix_ids, strict=True)
    )
    return [(end, label) for end, label in found if label is not None]


def _row(
    traced: Traced,
    steps: Sequence[tuple[int, float]],
    verdicts: Verdicts,
    prompt_keys: Mapping[str, str],
    origin_iteration: int,
) -> dict[str, Any]:
    row = traced.completion
    name = f"{origin_iteration}:{row['group_id']}:{row['sample_index']}"
    scored = [verdict for prefix in traced.prefix_ids if prefix is not None for verdict in verdicts[prefix]]
    return {
        "label_id": hashlib.sha256(name.encode()).hexdigest()[:24],
        "prompt_id": row["prompt_id"],
        "prompt_key": prompt_keys[row["prompt_id"]],
        "group_id": row["group_id"],
        "prompt_token_ids": list(row["prompt_token_ids"]),
        "completion_token_ids": list(row["completion_token_ids"]),
        "step_ends": [end for end, _ in steps],
        "step_labels": [label for _, label in steps],
        "num_continuations": sum(verdict is not None for verdict in scored),
        "origin_iteration": origin_iteration,
    }


def _metrics(rows: Sequence[Row], plan: Plan, verdicts: Verdicts) -> dict[str, float]:
    labels = [label for row in rows for label in row["step_labels"]]
    each = [verdict for found in verdicts.values() for verdict in found]
    unscored = sum(verdict is None for verdict in each)
    metrics = {
        "num_rows": float(len(rows)),
        "num_steps_labelled": float(len(labels)),
        "num_steps_without_label": plan.metrics["num_steps_chosen"] - len(labels),
        "num_continuations": float(len(each)),
        "num_continuations_unscored": float(unscored),
    }
    if each:
        metrics["share_unscored"] = unscored / len(each)
    if labels:
        metrics["label_mean"] = math.fsum(labels) / len(labels)
    return metrics
