"""Points: single completions that the verifier called right or wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.reward.config import PointsConfig
from tasks.reward.encoding import sequence_ids
from tasks.reward.examples import Example, Judged, at_the_end
from tasks.reward.labels import Row, distinct, key_columns, scored_groups
from tasks.values.seeds import derive_seed


def points_from_rows(
    completions: Sequence[Row],
    rewards: Sequence[Row],
    prompt_keys: Mapping[str, str],
    config: PointsConfig,
    *,
    source: str,
    origin_iteration: int,
    seed: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the points table: a completion and the label 1.0 where it ``is_correct``, 0.0 where it is not.

    Rows whose correctness is not known take no part; of equal completions of a group one is kept, and when they
    contradict each other none. At most ``max_points_per_group`` per group, chosen by hash of (seed, label) and not by
    class: the share of right ones stays what it is, so that the probability means what it says.

    ``source`` is not read: ``is_correct`` is already its verdict.

    Raises:
        ValueError: a (group, sample) comes twice in a table, or has a reward but no completion.
    """
    del source
    groups = scored_groups(completions, rewards, "is_correct")
    points: list[dict[str, Any]] = []
    contradicting = 0
    over_cap = 0
    for group_id in sorted(groups):
        members, dropped = distinct(groups[group_id])
        contradicting += dropped
        candidates = [
            {
                **key_columns(completion, (completion["sample_index"],), prompt_keys, origin_iteration),
                "completion_token_ids": completion["completion_token_ids"],
                "label": label,
            }
            for completion, label in members
        ]
        candidates.sort(key=lambda point: derive_seed(seed, point["label_id"]))
        points.extend(candidates[: config.max_points_per_group])
        over_cap += max(0, len(candidates) - config.max_points_per_group)
    metrics = {
        "num_labels": float(len(points)),
        "num_groups": float(len(groups)),
        "num_contradicting_completions": float(contradicting),
        "num_unscored": float(len(rewards) - sum(map(len, groups.values()))),
        "num_labels_over_cap": float(over_cap),
    }
    if points:
        metrics["positive_share"] = sum(point["label"] for point in points) / len(points)
    return points, metrics


def point_example(row: Row, max_tokens: int) -> Example | None:
    """The completion read at its end; None when none of it is left by the cut at ``max_tokens``."""
    sequence = sequence_ids(row["prompt_token_ids"], row["completion_token_ids"], max_tokens)
    if len(sequence) <= len(row["prompt_token_ids"]):
        return None
    return Example(
        label_id=row["label_id"],
        sequences=(sequence,),
        positions=at_the_end((sequence,)),
        targets=(row["label"],),
        num_tokens=(len(sequence) - len(row["prompt_token_ids"]),),
    )


def judge_point(example: Example, scores: Sequence[float]) -> Judged:
    """The score is the log-odds that the completion is right."""
    return Judged(
        logits=(scores[0],),
        targets=example.targets,
        scores=(scores[0],),
        labels=example.targets,
        lengths=example.num_tokens,
    )
