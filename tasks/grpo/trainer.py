"""The policy trainer: mu epochs of an objective over one step's samples."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.grpo.algorithms import OBJECTIVES, MicroBatch, Objective
from tasks.grpo.batch import PaddedBatch, TokenSequence, micro_batches, pad
from tasks.grpo.config import GrpoConfig
from tasks.grpo.logprobs import check_output_layer, completion_logprobs
from tasks.runtime.optimiser import NonFinite, Optimiser
from tasks.runtime.progress import OnProgress

Row = Mapping[str, Any]


class PolicyTrainer:
    """Trains ``model`` in place. The model stays in eval mode: dropout would make the ratio differ from 1 before any
    update."""

    def __init__(self, model: PreTrainedModel, config: GrpoConfig) -> None:
        self.model = model.eval()
        check_output_layer(self.model)
        self.config = config
        self.device = str(model.device)
        self.optimiser = Optimiser(model.named_parameters(), config.optimiser)

    @classmethod
    def load(cls, model: PreTrainedModel, config: GrpoConfig, folder: Path) -> "PolicyTrainer":
        """A trainer that goes on from the state in ``folder``; a fresh one when the folder does not exist (a policy
        that GRPO has not trained yet has no optimiser state)."""
        trainer = cls(model, config)
        if folder.exists():
            trainer.optimiser.load(folder)
        return trainer

    def save(self, folder: Path) -> None:
        """Write the optimiser's state; the weights are saved by whoever owns the checkpoint."""
        self.optimiser.save(folder)

    def update(
        self, rows: Sequence[Row], *, reference: PreTrainedModel | None, seed: int, on_progress: OnProgress
    ) -> dict[str, float]:
        """Train on one step's samples and give the step's metrics (see ``_Tally``).

        Masked rows take no part in loss, denominator or metrics. Rows of a group without signal count in the
        denominator; they are forwarded only when the KL gives them a gradient.

        Args:
            rows: rows of the samples table.
            reference: the frozen reference; needed exactly when ``kl_beta`` > 0.
            seed: of the order of the samples.

        Raises:
            NonFinite: a loss or gradient is not finite; names the rows that caused it. The weights are those of the
                last finite update and must not be published.
        """
        if (reference is None) == (self.config.kl_beta > 0):
            raise ValueError(f"kl_beta {self.config.kl_beta} and a reference belong together")
        # By id before the shuffle: the order in which rows arrive must not decide who shares a minibatch.
        usable = sorted(
            (index for index, row in enumerate(rows) if not row["is_masked"]),
            key=lambda index: (rows[index]["group_id"], rows[index]["sample_index"]),
        )
        tally = _Tally()
        frozen = _Frozen(self, rows, usable, reference, tally)
        shuffler = random.Random(seed)  # noqa: S311  # an order, not a secret
        size = self.config.minibatch_completions or max(1, len(usable))
        done = 0
        for _ in range(self.config.num_epochs):
            shuffler.shuffle(usable)
            for begin in range(0, len(usable), size):
                self._update_once(rows, usable[begin : begin + size], frozen, tally)
                done += len(usable[begin : begin + size])
                on_progress(done, len(usable) * self.config.num_epochs)
        return tally.metrics(self.optimiser)

    def _update_once(self, rows: Sequence[Row], minibatch: Sequence[int], frozen: "_Frozen", tally: "_Tally") -> None:
        learning = [index for index in minibatch if rows[index]["has_signal"] or self.config.kl_beta > 0]
        if not learning:
            tally.num_skipped_updates += 1
            return
        self.optimiser.zero_grad()
        losses = []
        for part in micro_batches([sequence_of(rows, index) for index in learning], self.config.micro_batch_tokens):
            objective = self._objective(rows, pad(part, self.device), frozen, len(minibatch), tally)
            objective.loss.backward()  # type: ignore[no-untyped-call]
            losses.append(objective.loss.detach())
        loss = torch.stack(losses).sum()
        try:
            if not bool(torch.isfinite(loss)):
                raise NonFinite(f"the loss is {float(loss)}")
            tally.add_update(loss, self.optimiser.update())
        except NonFinite as error:
            culprits = self._culprits(rows, learning, frozen)
            raise NonFinite(f"{error}; caused by rows (group_id/sample_index): {', '.join(culprits)}") from error

    def _objective(
        self, rows: Sequence[Row], batch: PaddedBatch, frozen: "_Frozen", denominator: int, tally: "_Tally"
    ) -> Objective:
        found = completion_logprobs(self.model, batch, temperatures(rows, batch))
        mask_BC = batch.completion_mask_BC
        objective = OBJECTIVES[self.config.algorithm](
            MicroBatch(
                policy_logprobs_BC=found.logprobs_BC,
                proximal_logprobs_BC=frozen.proximal(batch),
                reference_logprobs_BC=frozen.reference(batch),
                advantages_BC=advantages(rows, batch),
                mask_BC=mask_BC,
            ),
            self.config,
            float(denominator),
        )
        tally.add_tokens(objective.sums, found.entropy_BC.sum(), mask_BC.sum())
        return objective

    def _culprits(self, rows: Sequence[Row], indices: Sequence[int], frozen: "_Frozen") -> list[str]:
        """The rows whose own loss or gradient is not finite; all of them when only their sum is."""
        culprits = []
        for index in indices:
            self.optimiser.zero_grad()
            objective = self._objective(rows, pad([sequence_of(rows, index)], self.device), frozen, 1, _Tally())
            objective.loss.backward()  # type: ignore[no-untyped-call]
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            if not (torch.isfinite(objective.loss) and all(bool(torch.isfinite(g).all()) for g in gradients)):
                culprits.append(index)
        self.optimiser.zero_grad()
        return [f"{rows[index]['group_id']}/{rows[index]['sample_index']}" for index in culprits or indices]


class _Frozen:
    """Per-token log-probabilities that stay fixed during the update, by row."""

    def __init__(
        self,
        trainer: PolicyTrainer,
        rows: Sequence[Row],
        usable: Sequence[int],
        reference: PreTrainedModel | None,
        tally: "_Tally",
    ) -> None:
        self._device = trainer.device
        self._budget = trainer.config.micro_batch_tokens
        self._proximal: dict[int, Tensor] = {}
        unknown = []
        for index in usable:
            if rows[index]["sampler_logprobs"] is None:
                unknown.append(index)
                continue
            logprobs = torch.tensor(rows[index]["sampler_logprobs"], dtype=torch.float32)
            if len(logprobs) != len(rows[index]["completion_token_ids"]):
                name = f"{rows[index]['group_id']}/{rows[index]['sample_index']}"
                raise ValueError(
                    f"row {name} has {len(logprobs)} log-probs for {len(rows[index]['completion_token_ids'])} tokens"
                )
            self._proximal[index] = logprobs
        # An engine that knows no log-probabilities leaves them to the weights that sampled: those before the update.
        self._proximal |= self._forward(trainer.model, rows, unknown)
        tally.num_recomputed = len(unknown)
        self._reference = None if reference is None else self._forward(reference, rows, usable)

    @torch.no_grad()
    def _forward(self, model: PreTrainedModel, rows: Sequence[Row], indices: Sequence[int]) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        for part in micro_batches([sequence_of(rows, index) for index in indices], self._budget):
            batch = pad(part, self._device)
            logprobs_BC = completion_logprobs(model, batch, temperatures(rows, batch)).logprobs_BC.cpu()
            for position, row in enumerate(batch.rows):
                found[row] = logprobs_BC[position, : int(batch.lengths_B[position])]
        return found

    def proximal(self, batch: PaddedBatch) -> Tensor:
        return self._padded(self._proximal, batch)

    def reference(self, batch: PaddedBatch) -> Tensor | None:
        return None if self._reference is None else self._padded(self._reference, batch)

    def _padded(self, by_row: dict[int, Tensor], batch: PaddedBatch) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence([by_row[row] for row in batch.rows], batch_first=True).to(self._device)


class _Tally:
    """Sums that stay on the device until the step is over: reading one per micro-batch would wait for the device."""

    def __init__(self) -> None:
        self.num_skipped_updates = 0
        self.num_recomputed = 0
        self._losses: list[Tensor] = []
        self._grad_norms: list[float] = []
        self._sums: dict[str, list[Tensor]] = {}

    def add_tokens(self, sums: dict[str, Tensor], entropy: Tensor, num_tokens: Tensor) -> None:
        for name, value in {**sums, "entropy": entropy, "tokens": num_tokens}.items():
            self._sums.setdefault(name, []).append(value)

    def add_update(self, loss: Tensor, grad_norm: float) -> None:
        self._losses.append(loss)
        self._grad_norms.append(grad_norm)

    def metrics(self, optimiser: Optimiser) -> dict[str, float]:
        """loss and grad_norm: means over this step's updates (before clipping); kl (nats), entropy (nats), ratio_mean and
        clip_fraction: means over the trained tokens of all epochs. Missing when nothing was trained."""
        metrics = {
            "num_updates": float(len(self._losses)),
            "num_updates_total": float(optimiser.num_updates),
            "num_skipped_updates": float(self.num_skipped_updates),
            "num_recomputed_logprobs": float(self.num_recomputed),
        }
        if self._losses:
            total = {name: float(torch.stack(values).double().sum()) for name, values in self._sums.items()}
            tokens = total.pop("tokens")
            metrics["loss"] = float(torch.stack(self._losses).double().mean())
            metrics["grad_norm"] = sum(self._grad_norms) / len(self._grad_norms)
            metrics["num_trained_tokens"] = tokens
            names = {"ratio": "ratio_mean", "clipped": "clip_fraction", "kl": "kl", "entropy": "entropy"}
            metrics |= {names[name]: value / tokens for name, value in total.items() if name in names}
        return metrics


def sequence_of(rows: Sequence[Row], index: int) -> TokenSequence:
    return TokenSequence(index, rows[index]["prompt_token_ids"], rows[index]["completion_token_ids"])


def temperatures(rows: Sequence[Row], batch: PaddedBatch) -> Tensor:
    """[B] float32, the temperature each completion was sampled at."""
    values = [rows[row]["temperature"] for row in batch.rows]
    if bad := [value for value in values if not value > 0]:
        raise ValueError(f"temperature {bad[0]} has no log-probabilities to learn from; sample with one above 0")
    return torch.tensor(values, dtype=torch.float32, device=batch.lengths_B.device)


def advantages(rows: Sequence[Row], batch: PaddedBatch) -> Tensor:
    """[B, C] float32: the outcome advantage repeated over the completion, or the advantages by token."""
    longest = int(batch.lengths_B.max())
    advantages_BC = torch.zeros(len(batch.rows), longest, dtype=torch.float32)
    for position, row in enumerate(batch.rows):
        by_token = rows[row]["token_advantages"]
        length = len(rows[row]["completion_token_ids"])
        advantages_BC[position, :length] = torch.tensor(
            [rows[row]["advantage"]] * length if by_token is None else by_token, dtype=torch.float32
        )
    return advantages_BC.to(batch.lengths_B.device)
