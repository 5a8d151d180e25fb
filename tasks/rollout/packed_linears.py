"""Linear layers of few rows on a CPU: oneDNN's packed weights instead of the plain product."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

log = logging.getLogger(__name__)

SMALLEST_WEIGHT = 2**16
"""Entries; below this the call itself costs more than the product (576 x 192, one row: 80 against 17 microseconds)."""
FEWEST_ROWS = 4
"""Rows from which the packed product is the faster one on the machines measured (see benchmarks/results/rollouts.json)."""
TOLERANCE = 1e-3
"""Largest difference from the plain product in the check, where the entries of the product have deviation 24."""


@contextmanager
def packed_linears(model: nn.Module, num_rows: int) -> Iterator[None]:
    """Within the context, the float32 linear layers of ``model`` on a CPU multiply with packed copies of their weights.

    The copies (as large as the weights) are made on entry and dropped on exit, so that they are never older than the
    weights; the weights must not change within. Where the packed product is not offered or not right, nothing changes.

    Args:
        num_rows: rows of the products to expect most.
    Source: ours; operators of torch's oneDNN backend.
    """
    layers = [each for each in model.modules() if type(each) is nn.Linear and _is_worth_it(each)]
    if not layers or not packing_works():
        yield
        return
    try:
        for layer in layers:
            packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), num_rows)
            layer.forward = partial(_forward, layer.forward, packed, layer.bias)  # type: ignore[method-assign]
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _is_worth_it(module: nn.Linear) -> bool:
    return (
        "forward" not in module.__dict__  # somebody else's
        and module.weight.device.type == "cpu"
        and module.weight.dtype == torch.float32
        and module.weight.numel() >= SMALLEST_WEIGHT
    )


def _forward(plain: Callable[[Tensor], Tensor], packed: Tensor, bias: Tensor | None, input: Tensor) -> Tensor:  # noqa: A002 (nn.Linear's name)
    if input.numel() < FEWEST_ROWS * input.shape[-1]:
        return plain(input)
    return _packed_product(input, packed, bias)


def _packed_product(inputs: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed, bias, "none", [], "")
    return found


@cache
def packing_works() -> bool:
    """Whether this torch has the operators and they give what the plain product gives; says so once where not."""
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(320, 576, generator=generator), torch.randn(320, generator=generator)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 8)
        for rows in (1, 8, 33):
            inputs = torch.randn(rows, 576, generator=generator)
            for each in (bias, None):
                difference = (_packed_product(inputs, packed, each) - linear(inputs, weight, each)).abs().max().item()
                if not difference <= TOLERANCE:
                    log.warning("packed linear layers are off by %g here; the plain ones are used", difference)
                    return False
    except (AttributeError, RuntimeError, TypeError) as error:
        log.warning("packed linear layers are not offered here (%s); the plain ones are used", error)
        return False
    return True
