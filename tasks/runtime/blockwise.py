"""Numbers in eight bits: the nearest of 256 values between -1 and 1, times the largest of its block."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

BLOCK = 256
"""Consecutive numbers that share a scale."""
EXPONENTS = 7
"""Powers of ten that the values span: 1 down to 10^-6."""


@dataclass(frozen=True)
class Codes:
    """256 ascending values, and the 255 middles between neighbours (a number belongs to the value whose interval it is in).

    ``keeps_from_zero``: a number above 0 never becomes 0, whatever the rounding says.
    """

    values_256: Tensor
    middles_255: Tensor
    keeps_from_zero: bool


def dynamic_values(num_finest: int) -> list[float]:
    """Positive values of the dynamic format: in [10^-k / 10, 10^-k] lie ``num_finest`` * 2^(6 - k) of them, k = 0..6.

    Each such interval is cut into that many equal pieces, whose middles are the values: small numbers get few digits and a
    large range, large ones many digits.

    Source: Dettmers et al., arXiv:2110.02861, section 2.1 (dynamic tree quantisation).
    """
    found = []
    for k in range(EXPONENTS):
        pieces = num_finest * 2 ** (EXPONENTS - 1 - k)
        found += [10.0**-k * (0.1 + 0.9 * (piece + 0.5) / pieces) for piece in range(pieces)]
    return sorted(found)


def _codes(values: list[float], *, keeps_from_zero: bool) -> Codes:
    values_256 = torch.tensor(sorted(values), dtype=torch.float32)
    return Codes(values_256, (values_256[1:] + values_256[:-1]) / 2, keeps_from_zero)


# 127 values of either sign, 0 and 1; and 254 values, 0 and 1.
SIGNED = _codes([0.0, 1.0, *dynamic_values(1), *(-each for each in dynamic_values(1))], keeps_from_zero=False)
UNSIGNED = _codes([0.0, 1.0, *dynamic_values(2)], keeps_from_zero=True)


def quantised(numbers_N: Tensor, codes: Codes) -> tuple[Tensor, Tensor]:
    """[N] uint8 codes and [ceil(N / 256)] float32 scales; the last block may be shorter. NaN and infinity give NaN back."""
    blocks_MB = nn.functional.pad(numbers_N, (0, -len(numbers_N) % BLOCK)).view(-1, BLOCK)
    scales_M = blocks_MB.abs().amax(dim=1)
    shares_MB = blocks_MB / torch.where(scales_M > 0, scales_M, 1.0)[:, None]
    found_MB = torch.bucketize(shares_MB, codes.middles_255.to(numbers_N.device), out_int32=True)
    if codes.keeps_from_zero:
        found_MB = torch.where((found_MB == 0) & (blocks_MB > 0), 1, found_MB)
    return found_MB.to(torch.uint8).view(-1)[: len(numbers_N)], scales_M


def dequantised(codes_N: Tensor, scales_M: Tensor, codes: Codes) -> Tensor:
    """[N] float32."""
    values_N = codes.values_256.to(codes_N.device)[codes_N.int()]
    padded = nn.functional.pad(values_N, (0, -len(values_N) % BLOCK)).view(-1, BLOCK)
    return (padded * scales_M[:, None]).view(-1)[: len(codes_N)]
