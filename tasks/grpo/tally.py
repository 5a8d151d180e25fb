"""The metrics of an update, summed while it runs."""

import math

import torch
from torch import Tensor

from tasks.grpo.algorithms import Objective
from tasks.grpo.collective import Collective
from tasks.runtime.optimiser import Optimiser


class Tally:
    """Sums that stay on the device until the step is over: reading one per micro-batch would wait for the device."""

    MEANS = {"ratio": "ratio_mean", "clipped": "clip_fraction", "kl": "kl", "entropy": "entropy"}

    def __init__(self) -> None:
        self.num_skipped_updates = 0
        self._losses: list[Tensor] = []
        self._grad_norms: list[float] = []
        self._largest_ratios: list[Tensor] = []
        self._sums: dict[str, list[Tensor]] = {}

    def add_tokens(self, objective: Objective) -> None:
        self._largest_ratios.append(objective.largest_ratio)
        for name, value in objective.sums.items():
            self._sums.setdefault(name, []).append(value)

    def add_update(self, loss: Tensor, grad_norm: float) -> None:
        self._losses.append(loss)
        self._grad_norms.append(grad_norm)

    def metrics(self, optimiser: Optimiser, collective: Collective) -> dict[str, float]:
        """loss, policy_loss and grad_norm: means over this step's updates (before clipping); kl (nats), entropy (nats),
        ratio_mean and clip_fraction: means over the trained tokens of all epochs; ratio_max and learning_rate (of the
        last update). Missing when nothing was trained. Sums and the maximum are over every process of ``collective``."""
        metrics = {
            "num_updates": float(len(self._losses)),
            "num_updates_total": float(optimiser.num_updates),
            "num_skipped_updates": float(self.num_skipped_updates),
        }
        if self._losses:
            own = {name: float(torch.stack(values).double().sum()) for name, values in self._sums.items()}
            largest = float(torch.stack(self._largest_ratios).max()) if self._largest_ratios else -math.inf
            every = collective.gathered((own, largest))
            names = dict.fromkeys(name for sums, _ in every for name in sums)
            total = {name: sum(sums.get(name, 0.0) for sums, _ in every) for name in names}
            tokens = total.pop("tokens")
            metrics["loss"] = float(torch.stack(self._losses).double().mean())
            metrics["policy_loss"] = total["policy_loss"] / len(self._losses)
            metrics["grad_norm"] = sum(self._grad_norms) / len(self._grad_norms)
            metrics["learning_rate"] = optimiser.learning_rate
            metrics["ratio_max"] = max(ratio for _, ratio in every)
            metrics["num_trained_tokens"] = tokens
            metrics |= {self.MEANS[name]: value / tokens for name, value in total.items() if name in self.MEANS}
        return metrics
