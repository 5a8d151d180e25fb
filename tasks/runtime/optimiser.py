"""AdamW with warm-up and clipping, and its state as data (safetensors and JSON) that loads back bit for bit."""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tasks.runtime.adamw import SteppedAdamW, placed
from tasks.runtime.shards import like, whole
from tasks.values.optimiser import OptimiserConfig

STATE_FILE = "optimiser.safetensors"
COUNTERS_FILE = "optimiser.json"
OF_ANOTHER_SHAPE = ("step", "exp_avg_scale", "exp_avg_sq_root_scale")
"""Parts of the state that have not the parameter's shape."""


class NonFinite(Exception):
    """A loss or gradient that is not a finite number; the message names the rows that caused it."""


class Optimiser:
    """AdamW over named parameters; counts its updates, so that warm-up goes on after a resume."""

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        config: OptimiserConfig,
        *,
        in_host_memory: bool = False,
    ) -> None:
        self.config = config
        self.num_updates = 0
        named = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        settings = {
            "lr": config.learning_rate,
            "betas": (config.beta1, config.beta2),
            "eps": config.eps,
            "weight_decay": config.weight_decay,
        }
        self._in_host_memory = in_host_memory
        self._adamw: torch.optim.Optimizer
        if config.state == "float32" and not in_host_memory:
            # Fused: the plain loop holds copies of each parameter. On the CPU, for tensors of one process.
            is_fused = all(type(each) is nn.Parameter and each.device.type == "cpu" for each in self._parameters)
            self._adamw = torch.optim.AdamW(self._parameters, fused=is_fused or None, **settings)  # type: ignore[arg-type]
        else:
            self._adamw = SteppedAdamW(self._parameters, settings, config.state, in_host_memory=in_host_memory)

    @property
    def learning_rate(self) -> float:
        """The rate of the last update."""
        return learning_rate_at(max(0, self.num_updates - 1), self.config)

    def zero_grad(self) -> None:
        self._adamw.zero_grad(set_to_none=True)

    def update(self) -> float:
        """Clip the gradient to ``max_grad_norm``, apply it, and give its norm before clipping.

        Raises:
            NonFinite: the norm is not finite; the weights are unchanged.
        """
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        total = whole(nn.utils.get_total_norm(gradients))
        norm = float(total)
        if not math.isfinite(norm):
            raise NonFinite(f"the gradient norm is {norm}")
        nn.utils.clip_grads_with_norm_(self._parameters, self.config.max_grad_norm, total)
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate_at(self.num_updates, self.config)
        self._adamw.step()
        self.num_updates += 1
        return norm

    def save(self, folder: Path) -> None:
        """Write moments and counters into ``folder``, whole: the number of ranks may be another at the next start."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(dict(self._whole_state()), folder / STATE_FILE)
        (folder / COUNTERS_FILE).write_text(json.dumps({"num_updates": self.num_updates}) + "\n")

    def help_to_save(self) -> None:
        """Give this rank's pieces of the moments to the rank that saves."""
        for _ in self._whole_state():
            pass

    def _whole_state(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in zip(self._names, self._parameters, strict=True):
            for key, value in self._adamw.state.get(parameter, {}).items():
                yield f"{key}:{name}", whole(torch.as_tensor(value)).detach().cpu().contiguous()

    def load(self, folder: Path) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state belongs to other parameters (by name or shape); nothing is changed then.
        """
        num_updates = int(json.loads((folder / COUNTERS_FILE).read_text())["num_updates"])
        tensors = load_file(folder / STATE_FILE)
        owners = {key.split(":", 1)[1] for key in tensors}
        if foreign := owners - set(self._names):
            raise ValueError(f"{folder} holds the state of other parameters: {sorted(foreign)[:3]}")
        kinds = {key.split(":", 1)[0] for key in tensors}
        if self.config.state == "float32" and any(kind.endswith("_code") for kind in kinds):
            raise ValueError(
                f'{folder} holds moments in eight bits; set optimiser.state to "int8" or begin a new lineage'
            )
        shapes = {name: parameter.shape for name, parameter in zip(self._names, self._parameters, strict=True)}
        for key, value in tensors.items():
            kind, name = key.split(":", 1)
            if kind in OF_ANOTHER_SHAPE:
                continue
            if value.shape != shapes[name]:
                raise ValueError(
                    f"{folder} holds the state of other parameters: {name} is {list(value.shape)} there and "
                    f"{list(shapes[name])} in the model"
                )
        self.num_updates = num_updates
        for name, parameter in zip(self._names, self._parameters, strict=True):
            keys = [key for key in tensors if key.split(":", 1)[1] == name]
            if keys:
                state = {key.split(":", 1)[0]: tensors[key] for key in keys}
                laid = {
                    key: value if key in OF_ANOTHER_SHAPE else like(parameter, value) for key, value in state.items()
                }
                self._adamw.state[parameter] = placed(parameter, laid, in_host_memory=self._in_host_memory)


def learning_rate_at(update: int, config: OptimiserConfig) -> float:
    """Linear warm-up over ``num_warmup_updates``, then constant: lr * min(1, (update + 1) / (warm-up + 1))."""
    return config.learning_rate * min(1.0, (update + 1) / (config.num_warmup_updates + 1))
