"""Bradley-Terry training of the reward model."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.reward.config import RewardTrainingConfig
from tasks.reward.encoding import num_cut, sequence_ids
from tasks.reward.head import RewardModel
from tasks.reward.losses import bradley_terry
from tasks.reward.scorer import length_batches, padded
from tasks.runtime.optimiser import NonFinite, Optimiser
from tasks.runtime.progress import OnProgress

SIDES = ("chosen_token_ids", "rejected_token_ids")

Row = Mapping[str, Any]
Pair = tuple[list[int], list[int]]


class RewardTrainer:
    """Trains ``model`` in place, in eval mode: a training row's score is then the number that the scorer gives."""

    def __init__(self, model: RewardModel, config: RewardTrainingConfig) -> None:
        self.model = model.eval()
        self.config = config
        self.optimiser = Optimiser(model.named_parameters(), config.optimiser)

    @classmethod
    def load(cls, model: RewardModel, config: RewardTrainingConfig, folder: Path) -> "RewardTrainer":
        """A trainer that goes on from the optimiser state in ``folder``."""
        trainer = cls(model, config)
        trainer.optimiser.load(folder)
        return trainer

    def save(self, folder: Path) -> None:
        self.optimiser.save(folder)

    def train(self, rows: Sequence[Row], *, seed: int, on_progress: OnProgress) -> dict[str, float]:
        """``num_epochs`` passes over the pairs in a seeded order; without rows nothing changes.

        Pairs whose sides became equal by the cut at ``max_tokens`` are dropped and counted: they would only raise the
        loss by ln 2.

        Metrics: loss (nats per pair) and grad_norm (before clipping) are means over this call's updates;
        num_updates_total counts those of the whole lineage; num_cut counts sides that lost tokens to ``max_tokens``.

        Raises:
            ValueError: there are rows but no usable pair.
            NonFinite: a loss or gradient (names the pairs of its batch) or, at the end, a weight is not finite; the
                model must not be published.
        """
        pairs, names = self._usable(rows)
        metrics = {
            "num_training_pairs": float(len(pairs)),
            "num_equal_after_cut": float(len(rows) - len(pairs)),
            "num_cut": float(num_cut(rows, SIDES, self.config.max_tokens)),
            "num_fresh": float(sum(not row["is_replayed"] for row in rows)),
            "num_replayed": float(sum(row["is_replayed"] for row in rows)),
        }
        if rows and not pairs:
            raise ValueError(
                f"no usable pairs: all {len(rows)} are equal after {self.config.max_tokens} tokens; raise max_tokens"
            )
        shuffler = random.Random(seed)  # noqa: S311  # an order, not a secret
        order = list(range(len(pairs)))
        losses: list[Tensor] = []
        norms: list[float] = []
        for epoch in range(self.config.num_epochs):
            shuffler.shuffle(order)
            for begin in range(0, len(order), self.config.batch_pairs):
                batch = order[begin : begin + self.config.batch_pairs]
                loss, norm = self._update([pairs[index] for index in batch], [names[index] for index in batch])
                losses.append(loss)
                norms.append(norm)
                on_progress(epoch * len(order) + begin + len(batch), self.config.num_epochs * len(order))
        if losses:
            metrics |= {"loss": float(torch.stack(losses).mean()), "grad_norm": sum(norms) / len(norms)}
        if bad := [name for name, value in self.model.named_parameters() if not bool(torch.isfinite(value).all())]:
            raise NonFinite(f"weights are not finite after training: {', '.join(bad[:3])}; lower the learning rate")
        return metrics | {"num_updates_total": float(self.optimiser.num_updates)}

    def _usable(self, rows: Sequence[Row]) -> tuple[list[Pair], list[str]]:
        pairs, names = [], []
        for row in rows:
            chosen, rejected = (
                sequence_ids(row["prompt_token_ids"], row[side], self.config.max_tokens) for side in SIDES
            )
            if chosen != rejected:
                pairs.append((chosen, rejected))
                names.append(row["pair_id"])
        return pairs, names

    def _update(self, pairs: Sequence[Pair], names: Sequence[str]) -> tuple[Tensor, float]:
        self.optimiser.zero_grad()
        # Both sides of a pair stay in one micro-batch; the longer side decides its size.
        lengths = [2 * max(len(chosen), len(rejected)) for chosen, rejected in pairs]
        losses = []
        for batch in length_batches(lengths, self.config.micro_batch_tokens):
            sides = [pairs[index][0] for index in batch] + [pairs[index][1] for index in batch]
            scores_2B = self.model(*padded(sides, self.model.device))
            loss = bradley_terry(scores_2B[: len(batch)], scores_2B[len(batch) :], denominator=float(len(pairs)))
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        total = torch.stack(losses).sum()
        try:
            if not bool(torch.isfinite(total)):
                raise NonFinite(f"the loss is {float(total)}")
            return total, self.optimiser.update()
        except NonFinite as error:
            raise NonFinite(f"{error}; in the batch of pairs {', '.join(names)}") from error
