"""Whether a process reward model finds the place where a solution goes wrong."""

from collections.abc import Iterable, Sequence

from tasks.reward.examples import Judged


def first_wrong_step(judged: Sequence[Judged]) -> dict[str, float]:
    """Whether the first wrong step is found where there is one, and none is claimed where there is none.

        first_wrong_found = share of the wrong completions whose first step of probability <= 1/2 is the one so labelled
        no_wrong_claimed = share of the right completions without a step of probability <= 1/2
        first_wrong_f1 = 2 found none / (found + none), 0 when both are 0

    A completion is wrong when one of its labelled steps is (label <= 1/2); steps without a label take no part. Each share
    is missing without completions of its kind, and F1 without either.

    Args:
        judged: one per completion; ``logits`` and ``targets`` are those of its labelled steps, in order.
    Source: ProcessBench, arXiv:2412.06559 (accuracy on erroneous and on correct samples, their harmonic mean).
    """
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for each in judged:
        truth = _first(target <= 0.5 for target in each.targets)
        hits[truth is None].append(_first(logit <= 0 for logit in each.logits) == truth)
    metrics = {
        name: sum(hits[is_right]) / len(hits[is_right])
        for name, is_right in (("first_wrong_found", False), ("no_wrong_claimed", True))
        if hits[is_right]
    }
    if len(metrics) == 2:
        found, none = metrics.values()
        metrics["first_wrong_f1"] = 2.0 * found * none / (found + none) if found + none else 0.0
    return metrics


def _first(are_wrong: Iterable[bool]) -> int | None:
    return next((index for index, is_wrong in enumerate(are_wrong) if is_wrong), None)
