"""How well a reward model's scores agree with labels."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.reward.examples import Judged
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import LabelKind
from tasks.reward.scorer import score_examples
from tasks.runtime.optimiser import NonFinite
from tasks.values.ranks import auc, spearman

Row = Mapping[str, Any]


def judge_rows(
    model: RewardModel, rows: Sequence[Row], kind: LabelKind, *, micro_batch_tokens: int, max_tokens: int
) -> list[tuple[Row, Judged]]:
    """Every row and what the model says to it, in order; rows that the cut left without content are left out.

    Raises:
        NonFinite: a score is not a finite number; names the label. Such a model may not be published.
    """
    usable = [(row, found) for row in rows if (found := kind.example(row, max_tokens)) is not None]
    judged = []
    all_scores = score_examples(model, [example for _, example in usable], micro_batch_tokens=micro_batch_tokens)
    for (row, example), scores in zip(usable, all_scores, strict=True):
        if not all(math.isfinite(score) for score in scores):
            raise NonFinite(f"label {example.label_id} has the scores {', '.join(str(score) for score in scores)}")
        judged.append((row, kind.judge(example, scores)))
    return judged


def agreement(judged: Sequence[Judged]) -> dict[str, float]:
    """accuracy: share of outcomes whose log-odds have the right sign (0 counts half); auc: scores of positive labels
    against those of negative ones, where there are both. Nothing when there are no labels.
    """
    if not judged:
        return {}
    wins = [win for each in judged for win in wins_of(each)]
    metrics = {"accuracy": sum(wins) / len(wins), "num_labels": float(len(judged))}
    scored = [(score, label) for each in judged for score, label in zip(each.scores, each.labels, strict=True)]
    positive = [score for score, label in scored if label > 0.5]
    negative = [score for score, label in scored if label <= 0.5]
    if (found := auc(positive, negative)) is not None:
        metrics["auc"] = found
    return metrics


def wins_of(judged: Judged) -> list[float]:
    """1 for each outcome that its log-odds call right, 0 for one that they do not, a half for log-odds of 0."""
    return [
        0.5 if logit == 0 else float((logit > 0) == (target > 0.5))
        for logit, target in zip(judged.logits, judged.targets, strict=True)
    ]


def accuracy_by_prompt(judged: Sequence[tuple[Row, Judged]]) -> dict[str, float]:
    """Prompt key -> share of the outcomes of its labels that the model calls right."""
    wins: dict[str, list[float]] = {}
    for row, each in judged:
        wins.setdefault(row["prompt_key"], []).extend(wins_of(each))
    return {key: sum(values) / len(values) for key, values in wins.items()}


def length_correlations(judged: Sequence[Judged]) -> dict[str, float]:
    """Spearman's correlation of completion tokens with the score (length_correlation) and with the label
    (label_length_correlation): what the model makes of length beyond what is true of it. One without a value, because a
    side never varies, is left out.
    """
    lengths = [float(length) for each in judged for length in each.lengths]
    scores = [score for each in judged for score in each.scores]
    labels = [label for each in judged for label in each.labels]
    found = {"length_correlation": spearman(scores, lengths), "label_length_correlation": spearman(labels, lengths)}
    return {name: value for name, value in found.items() if value is not None}
