"""The preference loss."""

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
    if not denominator > 0:
        raise ValueError(f"denominator {denominator} is not positive: there are no pairs to average over")
    raised = chosen_B.float() if chosen_B.dtype.itemsize < 4 else chosen_B
    margin_B = raised - rejected_B.to(raised.dtype)
    return softplus(-margin_B).sum() / denominator
