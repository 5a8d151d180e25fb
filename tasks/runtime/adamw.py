"""AdamW one parameter at a time: its moments in float32 or in eight bits, on the parameter's device or in host memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from tasks.runtime.blockwise import BLOCK, SIGNED, UNSIGNED, dequantised, quantised
from tasks.values.optimiser import StatePrecision

MIN_QUANTISED = 4096
"""Numbers from which on a parameter's moments are kept in eight bits; small ones (norms, biases) stay float32."""
SLICE = BLOCK * (1 << 13)
"""Numbers whose moments are float32 at one time (2 M, 8 MB each)."""

State = dict[str, Tensor]


class SteppedAdamW(torch.optim.Optimizer):
    """AdamW (decoupled weight decay) whose state is what ``precision`` says.

    With ``in_host_memory`` the state lives on the CPU (pinned where there is a CUDA device) and visits the device parameter
    by parameter: the numbers are those of a state that never left.

    Source: Loshchilov and Hutter, arXiv:1711.05101, algorithm 2.
    """

    def __init__(
        self, parameters: Iterable[Tensor], defaults: dict[str, Any], precision: StatePrecision, *, in_host_memory: bool
    ) -> None:
        super().__init__(parameters, defaults)
        self._update = UPDATES[precision]
        self._in_host_memory = in_host_memory

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Apply the gradients; parameters without one are left alone."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = {
                    name: value if name == "step" else value.to(parameter.device)
                    for name, value in self.state[parameter].items()
                }
                state.setdefault("step", torch.zeros(()))
                self._update(parameter, parameter.grad, state, group)
                self.state[parameter] = placed(parameter, state, in_host_memory=self._in_host_memory)


def placed(parameter: Tensor, state: State, *, in_host_memory: bool) -> State:
    """A parameter's state where it is kept between steps; the counter is always on the CPU."""
    return {
        name: value.cpu() if name == "step" else _kept(value, parameter.device, in_host_memory=in_host_memory)
        for name, value in state.items()
    }


def _kept(value: Tensor, device: torch.device, *, in_host_memory: bool) -> Tensor:
    if not in_host_memory or device.type == "cpu":
        return value.to(device)
    return torch.empty_like(value, device="cpu", pin_memory=True).copy_(value)


def float32(parameter: Tensor, gradient: Tensor, state: State, group: dict[str, Any]) -> None:
    """First and second moment in full.

    Source: Kingma and Ba, arXiv:1412.6980, algorithm 1; PyTorch's own arithmetic.
    """
    for name in ("exp_avg", "exp_avg_sq"):
        state.setdefault(name, torch.zeros_like(parameter))
    _adamw(parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"], group)


def int8(parameter: Tensor, gradient: Tensor, state: State, group: dict[str, Any]) -> None:
    """The first moment, and the root of the second, in eight bits and a scale per block of 256.

    The root and not the second moment itself, because a root spans half the orders of magnitude; and a root that is not 0
    never becomes 0, since a moment divided by nothing would move a weight without bound. The state is about a quarter of
    float32's. A step computes in float32 and rounds what it keeps.

    Source: blockwise dynamic quantisation of Dettmers et al., arXiv:2110.02861, section 2; the root is ours.
    """
    if parameter.numel() < MIN_QUANTISED:
        float32(parameter, gradient, state, group)
        return
    if "exp_avg_code" not in state:
        num_blocks = -(-parameter.numel() // BLOCK)
        for name, codes in (("exp_avg", SIGNED), ("exp_avg_sq_root", UNSIGNED)):
            zero = int(codes.values_256.abs().argmin())
            state[f"{name}_code"] = torch.full(parameter.shape, zero, dtype=torch.uint8, device=parameter.device)
            state[f"{name}_scale"] = torch.zeros(num_blocks, device=parameter.device)
    step = state["step"].clone()
    for part, blocks in _slices(parameter.numel()):
        first = dequantised(state["exp_avg_code"].view(-1)[part], state["exp_avg_scale"][blocks], SIGNED)
        root = dequantised(
            state["exp_avg_sq_root_code"].view(-1)[part], state["exp_avg_sq_root_scale"][blocks], UNSIGNED
        )
        second = root.square_()
        step = state["step"].clone()
        _adamw(parameter.view(-1)[part], gradient.reshape(-1)[part], first, second, step, group)
        for name, value, codes in (("exp_avg", first, SIGNED), ("exp_avg_sq_root", second.sqrt_(), UNSIGNED)):
            code, scale = quantised(value, codes)
            state[f"{name}_code"].view(-1)[part] = code
            state[f"{name}_scale"][blocks] = scale
    state["step"] = step


UPDATES: dict[StatePrecision, Callable[[Tensor, Tensor, State, dict[str, Any]], None]] = {
    "float32": float32,
    "int8": int8,
}


def _slices(num_numbers: int) -> Iterator[tuple[slice, slice]]:
    """Parts of whole blocks, and the blocks that they are."""
    for begin in range(0, num_numbers, SLICE):
        end = min(begin + SLICE, num_numbers)
        yield slice(begin, end), slice(begin // BLOCK, -(-end // BLOCK))


def _adamw(
    parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: Tensor, group: dict[str, Any]
) -> None:
    """One step of PyTorch's AdamW in place; the fused kernel on the CPU, where the loop would hold copies of a parameter."""
    adamw(  # type: ignore[no-untyped-call]
        [parameter],
        [gradient.to(first.dtype)],
        [first],
        [second],
        [],
        [step],
        foreach=False,
        fused=parameter.device.type == "cpu",
        amsgrad=False,
        maximize=False,
        lr=group["lr"],
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
    )
