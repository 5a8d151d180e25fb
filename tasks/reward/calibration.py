"""Does a probability mean what it says? One temperature, fitted on labels of prompts that were never trained on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.values.seeds import derive_seed

MIN_TEMPERATURE = 0.05
MAX_TEMPERATURE = 20.0
NUM_BINS = 15
_HALVINGS = 100

Row = Mapping[str, Any]


def is_fitted_on(prompt_key: str) -> bool:
    """Whether a held-out prompt's labels fit the temperature; those of the others measure it. Half of the prompts, by
    sha256 of the key: the same in every process and iteration."""
    return derive_seed("temperature", prompt_key) % 2 == 0


def fit_temperature(logits: Sequence[float], targets: Sequence[float]) -> float:
    """The temperature t at which sigmoid(logit / t) explains the targets best, in [0.05, 20].

        nll(a) = mean_n [ y log(1 + exp(-a l)) + (1 - y) log(1 + exp(a l)) ],    a = 1 / t

    is convex in a, and its derivative mean_n [ l (sigmoid(a l) - y) ] rises: its root is halved in, in float64. Labels
    that no finite temperature fits (all of them right, or more wrong than right) end at a bound.

    Args:
        logits, targets: [N] log-odds of an outcome, and the outcome in [0, 1].

    Returns:
        1.0 when no logit differs from 0: nothing is known then.
    Source: Guo et al., arXiv:1706.04599, section 4.2 (temperature scaling).
    """
    if len(logits) != len(targets):
        raise ValueError(f"{len(logits)} logits and {len(targets)} targets")
    if all(logit == 0 for logit in logits):
        return 1.0

    def slope(a: float) -> float:
        return math.fsum(l * (sigmoid(a * l) - y) for l, y in zip(logits, targets, strict=True))  # noqa: E741

    low, high = 1.0 / MAX_TEMPERATURE, 1.0 / MIN_TEMPERATURE
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 2.0 / (low + high)


def calibration_of(logits: Sequence[float], targets: Sequence[float], temperature: float) -> dict[str, float]:
    """nll (nats), ece and brier of sigmoid(logit / temperature) against the targets. Nothing of nothing."""
    if not logits:
        return {}
    probabilities = [sigmoid(logit / temperature) for logit in logits]
    return {
        "nll": negative_log_likelihood([logit / temperature for logit in logits], targets),
        "ece": expected_calibration_error(probabilities, targets),
        "brier": brier_score(probabilities, targets),
    }


def negative_log_likelihood(logits: Sequence[float], targets: Sequence[float]) -> float:
    """Mean over outcomes of -log P(outcome), in nats; finite for every finite logit.

    Source: Guo et al., arXiv:1706.04599, section 2, eq. 6.
    """
    terms = [y * _softplus(-l) + (1.0 - y) * _softplus(l) for l, y in zip(logits, targets, strict=True)]  # noqa: E741
    return math.fsum(terms) / len(terms)


def expected_calibration_error(probabilities: Sequence[float], targets: Sequence[float]) -> float:
    """ECE = sum over bins of (n_bin / n) * |mean target - mean probability|, over 15 bins ((k - 1) / 15, k / 15] of equal
    width; 0 belongs to the first.

    The probability is that of the outcome 1, over [0, 1], not that of the likelier class: a binary model that is too sure
    of 0 and one that is too sure of 1 are told apart.

    Source: Guo et al., arXiv:1706.04599, section 2, eq. 3; Naeini et al. (2015).
    """
    bins: dict[int, list[tuple[float, float]]] = {}
    for probability, target in zip(probabilities, targets, strict=True):
        if not 0 <= probability <= 1:
            raise ValueError(f"probability {probability} lies outside [0, 1]")
        # 0.2 * 15 may be 3.0000000000000004: the binary noise goes first.
        number = max(1, math.ceil(round(probability * NUM_BINS, 9)))
        bins.setdefault(number, []).append((probability, target))
    gaps = [abs(math.fsum(target - probability for probability, target in members)) for members in bins.values()]
    return math.fsum(gaps) / len(probabilities)


def brier_score(probabilities: Sequence[float], targets: Sequence[float]) -> float:
    """Mean of (probability - target)^2: 0 at best, 0.25 for always saying one half.

    Source: Brier (1950), Verification of forecasts expressed in terms of probability.
    """
    return math.fsum((p - y) ** 2 for p, y in zip(probabilities, targets, strict=True)) / len(probabilities)


def sigmoid(logit: float) -> float:
    """1 / (1 + exp(-logit)) without overflow."""
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    raised = math.exp(logit)
    return raised / (1.0 + raised)


def _softplus(logit: float) -> float:
    return max(logit, 0.0) + math.log1p(math.exp(-abs(logit)))
