"""Numbers in eight bits: the nearest of 256 values between -1 and 1, times the largest of its block."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

BLOCK = 256
"""Consecutive numbers that share a scale."""
EXPONENTS = 7
"""Powers of ten that the values span: 1 down to 10^-6."""


MANTISSA_BITS = 7
"""Leading bits of the mantissa that, with sign and exponent, say in which bin of the look-up a float32 lies."""
NUM_BINS = 1 << (9 + MANTISSA_BITS)


@dataclass(frozen=True)
class Codes:
    """256 ascending values, and the 255 middles between neighbours (a number belongs to the value whose interval it is in).

    A number's interval is looked up by its leading bits: no bin of them holds more than one middle, so that one comparison
    is left to do. A binary search over the middles is ten times slower on a CPU.

    ``keeps_from_zero``: a number above 0 never becomes 0, whatever the rounding says.
    """

    values_256: Tensor
    middles_255: Tensor
    keeps_from_zero: bool
    lowest_code_65536: Tensor
    """uint8, by bin: the code of the bin's smallest number."""
    next_from_65536: Tensor
    """float32, by bin: numbers above this have the next code; infinite where the whole bin has one code."""


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
    middles_255 = (values_256[1:] + values_256[:-1]) / 2
    return Codes(values_256, middles_255, keeps_from_zero, *_look_up(middles_255))


def _look_up(middles_255: Tensor) -> tuple[Tensor, Tensor]:
    """``lowest_code_65536`` and ``next_from_65536`` of Codes."""
    shift = 23 - MANTISSA_BITS
    first = torch.arange(NUM_BINS) << shift
    ends = torch.stack([first, first + (1 << shift) - 1])
    ends = torch.where(ends < 1 << 31, ends, ends - (1 << 32)).to(torch.int32).view(torch.float32)
    ends = torch.where(ends.isnan(), ends[0].nan_to_num(nan=torch.inf), ends)  # infinity's bins hold NaN too
    lowest, highest = (
        torch.bucketize(ends, middles_255).sort(dim=0).values
    )  # of a negative bin the last bits are the lowest
    assert bool((highest - lowest <= 1).all()), "a bin holds two middles; take more bits of the mantissa"
    is_split = highest > lowest
    next_from = torch.where(is_split, middles_255[lowest.clamp(max=254)], torch.inf)
    return lowest.to(torch.uint8), next_from


# 127 values of either sign, 0 and 1; and 254 values, 0 and 1.
SIGNED = _codes([0.0, 1.0, *dynamic_values(1), *(-each for each in dynamic_values(1))], keeps_from_zero=False)
UNSIGNED = _codes([0.0, 1.0, *dynamic_values(2)], keeps_from_zero=True)


def quantised(numbers_N: Tensor, codes: Codes) -> tuple[Tensor, Tensor]:
    """[N] uint8 codes and [ceil(N / 256)] float32 scales; the last block may be shorter. NaN and infinity give NaN back."""
    blocks_MB = nn.functional.pad(numbers_N, (0, -len(numbers_N) % BLOCK)).view(-1, BLOCK)
    scales_M = blocks_MB.abs().amax(dim=1)
    shares_MB = blocks_MB / torch.where(scales_M > 0, scales_M, 1.0)[:, None]
    shares_N = shares_MB.view(-1)
    bins_N = (shares_N.view(torch.int32) >> (23 - MANTISSA_BITS)) & (NUM_BINS - 1)
    next_from_N = codes.next_from_65536.to(numbers_N.device).index_select(0, bins_N)
    found_N = codes.lowest_code_65536.to(numbers_N.device).index_select(0, bins_N) + (shares_N > next_from_N)
    if codes.keeps_from_zero:
        found_N = torch.maximum(found_N, (blocks_MB.view(-1) > 0).to(torch.uint8))
    return found_N[: len(numbers_N)], scales_M


def dequantised(codes_N: Tensor, scales_M: Tensor, codes: Codes) -> Tensor:
    """[N] float32."""
    values_N = codes.values_256.to(codes_N.device).index_select(0, codes_N.int())
    padded = nn.functional.pad(values_N, (0, -len(values_N) % BLOCK)).view(-1, BLOCK)
    return (padded * scales_M[:, None]).view(-1)[: len(codes_N)]
