"""The loss of a process reward model."""

from torch import Tensor
from torch.nn.functional import softplus


def step_cross_entropy(logits_N: Tensor, labels_N: Tensor, *, denominator: float) -> Tensor:
    """Binary cross-entropy of every step, hard or soft labels.

        L = (1 / denominator) * sum_n log(1 + exp(z_n)) - y_n * z_n

    Args:
        logits_N: [N] log-odds that a step is right; bfloat16 and float16 are raised to float32 first.
        labels_N: [N] in [0, 1]: the share of continuations that reach the right answer, or 0 and 1.
        denominator: labelled steps of the whole optimiser batch, > 0.

    Gradient: dL/dz_n = (sigmoid(z_n) - y_n) / denominator, finite for every logit: no log of a probability is taken.
    The least value for a soft label y is its entropy, reached at z = log(y / (1 - y)), not 0.
    Errors: ValueError when the denominator is not positive, or the shapes differ.
    Source: Math-Shepherd, arXiv:2312.08935, eq. 2 (hard labels); with soft labels eq. 4 in place of eq. 3 as its target.
    """
    if not denominator > 0:
        raise ValueError(f"denominator {denominator} is not positive: there are no steps to average over")
    if logits_N.shape != labels_N.shape:
        raise ValueError(f"logits {tuple(logits_N.shape)} and labels {tuple(labels_N.shape)} are not one per step")
    raised_N = logits_N.float() if logits_N.dtype.itemsize < 4 else logits_N
    targets_N = labels_N.to(raised_N.dtype)
    # softplus(z) - y z would subtract two large numbers; one softplus per outcome does not.
    losses_N = targets_N * softplus(-raised_N) + (1.0 - targets_N) * softplus(raised_N)
    return losses_N.sum() / denominator
