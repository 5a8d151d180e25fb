"""pass@k from n samples."""

import math


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is correct: 1 - C(n - c, k) / C(n, k).

    Source: Chen et al., arXiv:2107.03374, eq. 1.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"k {k} is not between 1 and the {num_samples} samples")
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"{num_correct} correct of {num_samples} samples")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)
