"""How well a process reward model tells right steps from wrong ones."""

import math
from collections.abc import Sequence

from tasks.reward.scorer import auc

THRESHOLD = 0.5
"""A step counts as right from this label, or this probability, on."""

Steps = Sequence[Sequence[float]]


def step_metrics(probabilities: Steps, labels: Steps) -> dict[str, float]:
    """Over all steps: their AUC and accuracy; over completions: ``first_wrong_step``.

    A soft label counts as right from 0.5 on. What needs both right and wrong steps is missing without them, everything is
    without any step.

    Args:
        probabilities, labels: per completion one number in [0, 1] per labelled step.

    Raises:
        ValueError: a completion has not one probability per label.
    """
    for each, given in zip(probabilities, labels, strict=True):
        if len(each) != len(given):
            raise ValueError(f"{len(each)} probabilities for {len(given)} step labels")
    pairs = [
        (each, label)
        for row, given in zip(probabilities, labels, strict=True)
        for each, label in zip(row, given, strict=True)
    ]
    if not pairs:
        return {}
    agreed = [(each >= THRESHOLD) == (label >= THRESHOLD) for each, label in pairs]
    metrics = {"num_steps": float(len(pairs)), "step_accuracy": math.fsum(agreed) / len(agreed)}
    right = [each for each, label in pairs if label >= THRESHOLD]
    wrong = [each for each, label in pairs if label < THRESHOLD]
    metrics["share_right_steps"] = len(right) / len(pairs)
    if right and wrong:
        metrics["step_auc"] = auc(right, wrong)
    return metrics | first_wrong_step(probabilities, labels)


def first_wrong_step(probabilities: Steps, labels: Steps) -> dict[str, float]:
    """Whether the first wrong step is found where there is one, and none is claimed where there is none.

        found = share of the wrong completions whose first step below 0.5 is the one labelled so first
        none = share of the right completions without a step below 0.5
        F1 = 2 found none / (found + none), 0 when both are 0

    A completion is wrong when one of its labelled steps is. Each share is missing without completions of its kind, and F1
    without either.

    Source: ProcessBench, arXiv:2412.06559 (accuracy on erroneous and on correct samples, their harmonic mean).
    """
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for each, given in zip(probabilities, labels, strict=True):
        if given:
            truth = _first_below(given)
            hits[truth is None].append(_first_below(each) == truth)
    metrics = {
        name: sum(hits[is_right]) / len(hits[is_right])
        for name, is_right in (("first_wrong_found", False), ("no_wrong_claimed", True))
        if hits[is_right]
    }
    if len(metrics) == 2:
        found, none = metrics.values()
        metrics["first_wrong_f1"] = 2.0 * found * none / (found + none) if found + none else 0.0
    return metrics


def _first_below(values: Sequence[float]) -> int | None:
    return next((index for index, value in enumerate(values) if value < THRESHOLD), None)
