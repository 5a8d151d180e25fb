"""Training of the reward model on labels of any kind."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.reward.config import RewardTrainingConfig
from tasks.reward.encoding import num_cut
from tasks.reward.examples import Example
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import LabelKind
from tasks.reward.scorer import length_batches, padded
from tasks.runtime.optimiser import NonFinite, Optimiser
from tasks.runtime.progress import OnProgress

Row = Mapping[str, Any]


class RewardTrainer:
    """Trains ``model`` in place, in eval mode: a training row's score is then the number that the scorer gives."""

    def __init__(self, model: RewardModel, config: RewardTrainingConfig, kind: LabelKind) -> None:
        self.model = model.eval()
        self.config = config
        self.kind = kind
        self.optimiser = Optimiser(model.named_parameters(), config.optimiser)

    @classmethod
    def load(cls, model: RewardModel, config: RewardTrainingConfig, kind: LabelKind, folder: Path) -> "RewardTrainer":
        """A trainer that goes on from the optimiser state in ``folder``."""
        trainer = cls(model, config, kind)
        trainer.optimiser.load(folder)
        return trainer

    def save(self, folder: Path) -> None:
        self.optimiser.save(folder)

    def train(self, rows: Sequence[Row], *, seed: int, on_progress: OnProgress) -> dict[str, float]:
        """``num_epochs`` passes over the labels in a seeded order; without rows nothing changes.

        Labels that the cut at ``max_tokens`` left without content (two sides that became equal, say) are dropped and
        counted.

        Metrics: loss (nats per target) and grad_norm (before clipping) are means over this call's updates;
        num_updates_total counts those of the whole lineage; num_cut counts sequences that lost tokens to ``max_tokens``.

        Raises:
            ValueError: there are rows but no usable label.
            NonFinite: a loss or gradient (names the labels of its batch) or, at the end, a weight is not finite; the
                model must not be published.
        """
        examples = [found for row in rows if (found := self.kind.example(row, self.config.max_tokens)) is not None]
        metrics = {
            "num_training_labels": float(len(examples)),
            "num_emptied_by_cut": float(len(rows) - len(examples)),
            "num_cut": float(num_cut(rows, self.kind.completions, self.config.max_tokens)),
            "num_fresh": float(sum(not row["is_replayed"] for row in rows)),
            "num_replayed": float(sum(row["is_replayed"] for row in rows)),
        }
        if rows and not examples:
            raise ValueError(
                f"no usable {self.kind.table}: the cut at {self.config.max_tokens} tokens left nothing to learn of all "
                f"{len(rows)}; raise max_tokens"
            )
        shuffler = random.Random(seed)  # noqa: S311  # an order, not a secret
        order = list(range(len(examples)))
        losses: list[Tensor] = []
        norms: list[float] = []
        for epoch in range(self.config.num_epochs):
            shuffler.shuffle(order)
            for begin in range(0, len(order), self.config.batch_labels):
                batch = [examples[index] for index in order[begin : begin + self.config.batch_labels]]
                loss, norm = self._update(batch)
                losses.append(loss)
                norms.append(norm)
                on_progress(epoch * len(order) + begin + len(batch), self.config.num_epochs * len(order))
        if losses:
            metrics |= {"loss": float(torch.stack(losses).mean()), "grad_norm": sum(norms) / len(norms)}
        if bad := [name for name, value in self.model.named_parameters() if not bool(torch.isfinite(value).all())]:
            raise NonFinite(f"weights are not finite after training: {', '.join(bad[:3])}; lower the learning rate")
        return metrics | {"num_updates_total": float(self.optimiser.num_updates)}

    def _update(self, examples: Sequence[Example]) -> tuple[Tensor, float]:
        self.optimiser.zero_grad()
        denominator = float(sum(len(example.targets) for example in examples))
        # The sequences of an example stay in one micro-batch; its longest decides its size.
        lengths = [len(each.sequences) * max(len(sequence) for sequence in each.sequences) for each in examples]
        losses = []
        for batch in length_batches(lengths, self.config.micro_batch_tokens):
            loss = self._loss([examples[index] for index in batch], denominator)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        total = torch.stack(losses).sum()
        try:
            if not bool(torch.isfinite(total)):
                raise NonFinite(f"the loss is {float(total)}")
            return total, self.optimiser.update()
        except NonFinite as error:
            names = ", ".join(example.label_id for example in examples)
            raise NonFinite(f"{error}; in the batch of {self.kind.table} {names}") from error

    def _loss(self, examples: Sequence[Example], denominator: float) -> Tensor:
        sequences = [sequence for example in examples for sequence in example.sequences]
        positions = [each for example in examples for each in example.positions]
        targets_K = torch.tensor([target for example in examples for target in example.targets])
        scores_N = self.model.scores_at(*padded(sequences, self.model.device), positions)
        return self.kind.loss(scores_N, targets_K.to(scores_N.device), denominator=denominator)
