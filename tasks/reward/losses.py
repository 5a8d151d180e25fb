"""The losses of the reward model: sums over terms, scaled by a denominator that the caller gives for the whole batch."""

from torch import Tensor
from torch.nn.functional import softplus


def bradley_terry(chosen_B: Tensor, rejected_B: Tensor, *, denominator: float) -> Tensor:
    """Negative log-likelihood that the chosen completion wins.

        L = (1 / denominator) * sum_b log(1 + exp(-(chosen - rejected)))

    Args:
        chosen_B, rejected_B: [B] scores; bfloat16 and float16 are raised to float32 before the difference.
        denominator: pairs of the whole optimiser batch, > 0.

    Gradient: dL/d(margin) = -(1 - sigmoid(margin)) / denominator; finite for every margin, unlike log(sigmoid(x)).
    Errors: ValueError when the denominator is not positive.
    Source: Bradley and Terry (1952); Ouyang et al., arXiv:2203.02155, eq. 1.
    """
    _check(denominator)
    raised = _raised(chosen_B)
    margin_B = raised - rejected_B.to(raised.dtype)
    return softplus(-margin_B).sum() / denominator


def binary_cross_entropy(scores_N: Tensor, targets_N: Tensor, *, denominator: float) -> Tensor:
    """Negative log-likelihood of the labels, the score being the log-odds of 1.

        L = (1 / denominator) * sum_n [ y log(1 + exp(-s)) + (1 - y) log(1 + exp(s)) ]

    Args:
        scores_N: [N] log-odds; bfloat16 and float16 are raised to float32.
        targets_N: [N] labels in [0, 1]; a share stands for a label that is right that often.
        denominator: terms of the whole optimiser batch, > 0.

    Gradient: dL/ds = (sigmoid(s) - y) / denominator; finite for every score, unlike log(sigmoid(s)).
    Errors: ValueError when the denominator is not positive, a target lies outside [0, 1], or the shapes differ.
    Source: Cobbe et al., arXiv:2110.14168, section 4 (verifiers); per step: Lightman et al., arXiv:2305.20050, section 2.
    """
    _check(denominator)
    if scores_N.shape != targets_N.shape:
        raise ValueError(f"{list(scores_N.shape)} scores and {list(targets_N.shape)} labels: one label for each score")
    if not bool(((targets_N >= 0) & (targets_N <= 1)).all()):
        raise ValueError("a label lies outside [0, 1]")
    raised_N = _raised(scores_N)
    labels_N = targets_N.to(raised_N.dtype)
    return (labels_N * softplus(-raised_N) + (1 - labels_N) * softplus(raised_N)).sum() / denominator


def _check(denominator: float) -> None:
    if not denominator > 0:
        raise ValueError(f"denominator {denominator} is not positive: there is nothing to average over")


def _raised(scores_N: Tensor) -> Tensor:
    return scores_N.float() if scores_N.dtype.itemsize < 4 else scores_N
