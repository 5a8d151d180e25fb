"""Does the reward model see what the verifier sees? Both on the same sampled completions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.values.ranks import auc, spearman

Row = Mapping[str, Any]


def agreement_metrics(completions: Sequence[Row], rewards: Sequence[Row]) -> dict[str, float]:
    """How far verifier and reward model agree, over the rewards rows that both of them scored.

        gap = mean(probability) - mean(correct)

    - num_agreement_rows, num_agreement_left_out: rows that both scored, and the others.
    - reward_model_gap: above 0 the reward model thinks better of the completions than the verifier.
    - reward_model_rank_correlation: Spearman of probability and correctness.
    - reward_model_auc: the chance that a correct completion scores above a wrong one, over all of them.
    - reward_model_auc_within_groups: the same within each group that holds both, then the mean over those groups: the
      differences that group-relative advantages, and pairs within a group, see.
    - reward_model_length_correlation: Spearman of probability and length in tokens; near 1, it rewards length.

    What has no value (no such rows, or nothing differs) is left out. The order of the rows does not matter.

    Args:
        completions: with ``completion_token_ids``; joined by group id and sample index.
        rewards: ``is_correct``, and the reward model's probability in ``reward_model_reward``; None where not scored.

    Raises:
        ValueError: a probability is NaN.
    Source: ranks: tasks/values/ranks.py; the gap: Gao et al., Scaling laws for reward model overoptimization,
        arXiv:2210.10760 (proxy and gold score of the same samples).
    """
    rows = both_scored(rewards)
    found = {"num_agreement_rows": float(len(rows)), "num_agreement_left_out": float(len(rewards) - len(rows))}
    if not rows:
        return found
    probabilities = [float(row["reward_model_reward"]) for row in rows]
    correct = [float(row["is_correct"]) for row in rows]
    tokens = {(row["group_id"], row["sample_index"]): len(row["completion_token_ids"]) for row in completions}
    lengths = [tokens[row["group_id"], row["sample_index"]] for row in rows]
    measured = {
        "reward_model_gap": (math.fsum(probabilities) - math.fsum(correct)) / len(rows),
        "reward_model_rank_correlation": spearman(probabilities, correct),
        "reward_model_auc": _auc(rows),
        "reward_model_auc_within_groups": _auc_within_groups(rows),
        "reward_model_length_correlation": spearman(probabilities, lengths),
    }
    return found | {name: value for name, value in measured.items() if value is not None}


def both_scored(rewards: Sequence[Row]) -> list[Row]:
    """The rows that the verifier and the reward model both scored."""
    return [row for row in rewards if row["is_correct"] is not None and row["reward_model_reward"] is not None]


def disagreements(rewards: Sequence[Row]) -> list[Row]:
    """The rows that both scored, the largest |probability - correct| first; ties by group id and sample index."""
    return sorted(
        both_scored(rewards),
        key=lambda row: (-disagreement(row), row["group_id"], row["sample_index"]),
    )


def disagreement(row: Row) -> float:
    """|probability - correct| of a row that both scored: 0 in full agreement, 1 at most."""
    return abs(float(row["reward_model_reward"]) - float(row["is_correct"]))


def _auc(rows: Sequence[Row]) -> float | None:
    return auc(
        [row["reward_model_reward"] for row in rows if row["is_correct"]],
        [row["reward_model_reward"] for row in rows if not row["is_correct"]],
    )


def _auc_within_groups(rows: Sequence[Row]) -> float | None:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    known = [found for members in groups.values() if (found := _auc(members)) is not None]
    return math.fsum(known) / len(known) if known else None
