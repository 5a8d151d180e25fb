"""The policy trainer: mu epochs of an objective over one step's samples."""

import logging
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.grpo.adapter import Adapter
from tasks.grpo.aggregation import AGGREGATIONS
from tasks.grpo.algorithms import MicroBatch, Objective, objective
from tasks.grpo.batch import CompletionBatch, pad
from tasks.grpo.collective import ALONE, Collective
from tasks.grpo.config import UpdateConfig
from tasks.grpo.frozen import FrozenLogprobs, num_updates, sequence_of, temperatures
from tasks.grpo.layouts import layout_for, share_attention
from tasks.grpo.logprobs import check_output_layer, detached_entropy, entropy_of
from tasks.grpo.tally import Tally
from tasks.runtime.checkpointing import checkpoint_layers
from tasks.runtime.config import MachineConfig
from tasks.runtime.optimiser import NonFinite, Optimiser
from tasks.runtime.precision import compute_dtype, in_precision
from tasks.runtime.progress import OnProgress
from tasks.runtime.shards import piece
from tasks.runtime.views import ModelView, compiled

log = logging.getLogger(__name__)

Row = Mapping[str, Any]
DEFAULT_MACHINE = MachineConfig()


class PolicyTrainer:
    """Trains ``model`` in place. The model stays in eval mode: dropout would make the ratio differ from 1 before any
    update."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: UpdateConfig,
        machine: MachineConfig = DEFAULT_MACHINE,
        adapter: Adapter | None = None,
        collective: Collective = ALONE,
    ) -> None:
        self.model = model.eval()
        self.adapter = adapter
        check_output_layer(self.model)
        self.config = config
        self.device = str(model.device)
        self.dtype = compute_dtype(config.precision, self.device)
        log.info("the update computes products in %s", self.dtype)
        self.layout = layout_for(self.model, config.layout, "branches" if machine.compile == "off" else "mask")
        if machine.gradient_checkpointing:
            checkpoint_layers(self.model)
        asked = self.model if machine.compile == "off" else compiled(self.model, machine.compile)
        self.collective = collective
        self.shared = collective.share(asked)  # before the optimiser, which holds the weights as they lie now
        self.optimiser = Optimiser(model.named_parameters(), config.optimiser, in_host_memory=machine.offload_optimiser)

    @classmethod
    def load(
        cls,
        model: PreTrainedModel,
        config: UpdateConfig,
        folder: Path,
        machine: MachineConfig = DEFAULT_MACHINE,
        collective: Collective = ALONE,
    ) -> "PolicyTrainer":
        """A trainer that goes on from the state in ``folder``; a fresh one when the folder does not exist (a policy
        that has not been updated yet has no optimiser state)."""
        trainer = cls(model, config, machine, collective=collective)
        if folder.exists():
            trainer.optimiser.load(folder)
        return trainer

    @classmethod
    def load_with_adapter(
        cls,
        base: PreTrainedModel,
        config: UpdateConfig,
        saved: tuple[Path, Path] | None,
        machine: MachineConfig = DEFAULT_MACHINE,
        *,
        base_digest: str,
        seed: int,
    ) -> "PolicyTrainer":
        """A trainer of an adapter over ``base``, the policy as it stood when the iteration began: a new adapter (from
        ``seed``) and a new optimiser, or the ``saved`` ones (the adapter's folder and the optimiser's)."""
        assert config.lora is not None
        weights, state = saved or (None, None)
        adapter = Adapter(base, config.lora, base_digest=base_digest, seed=seed)
        if weights is not None:
            adapter.load(weights)
        trainer = cls(base, config, machine, adapter)
        if state is not None:
            trainer.optimiser.load(state)
        return trainer

    def save(self, folder: Path) -> None:
        """Write the optimiser's state (of several processes the first does); the weights are saved by whoever owns the
        checkpoint."""
        if self.collective.rank == 0:
            self.optimiser.save(folder)
        else:
            self.optimiser.help_to_save()

    def policy(self) -> PreTrainedModel:
        """The policy as a plain model: the trained model itself, or the sums of base and adapter."""
        return self.model if self.adapter is None else self.adapter.merged()

    def update(
        self,
        rows: Sequence[Row],
        *,
        reference: PreTrainedModel | ModelView | None,
        max_new_tokens: int,
        seed: int,
        on_progress: OnProgress,
    ) -> dict[str, float]:
        """Train on one step's samples and give the step's metrics (see ``Tally`` and ``FrozenLogprobs``).

        Masked rows take no part in loss, denominator or metrics. Rows without signal count in the denominator; they are
        forwarded only when the KL or the entropy bonus gives them a gradient. A step in which no row has signal makes no
        update at all, KL and entropy bonus or not: the weights stay as they are, bit for bit.

        Args:
            rows: rows of the samples table.
            reference: the frozen reference; needed exactly when the KL stands in the loss. The trained model itself, where
                it has not moved since the iteration began: no second model is then held.
            max_new_tokens: longest completion that sampling allows (denominator of the fixed-length aggregation).
            seed: of the order of the samples.

        Raises:
            NonFinite: a loss or gradient is not finite; names the rows that caused it. The weights are those of the
                last finite update and must not be published.
        """
        if (reference is None) == self.config.kl_in_loss:
            raise ValueError(f'kl "{self.config.kl.placement}" and a reference do not go together')
        # By id before the shuffle: the order in which rows arrive must not decide who shares a minibatch.
        usable = sorted(
            (index for index, row in enumerate(rows) if not row["is_masked"]),
            key=lambda index: (rows[index]["group_id"], rows[index]["sample_index"]),
        )
        policy, other = self.collective.share(self.model), None
        if reference is not None:
            share_attention(self.model, reference)
            other = self.collective.share(reference)
        with in_precision(self.dtype, self.device):
            frozen = FrozenLogprobs(policy, other, rows, usable, self.config, self.layout)
        described = frozen.metrics | {"precision_bits": 8.0 * self.dtype.itemsize}
        usable = [index for index in usable if frozen.num_tokens(index)]
        tally = Tally()
        shuffler = random.Random(seed)  # noqa: S311  # an order, not a secret
        size = self.config.minibatch_completions or max(1, len(usable))
        if not any(rows[index]["has_signal"] for index in usable):
            tally.num_skipped_updates = num_updates(self.config, len(usable))
            return tally.metrics(self.optimiser, self.collective) | described | self._of_adapter()
        done = 0
        for _ in range(self.config.num_epochs):
            shuffler.shuffle(usable)
            for begin in range(0, len(usable), size):
                minibatch = usable[begin : begin + size]
                lengths = [frozen.num_tokens(index) for index in minibatch]
                aggregation = self.config.aggregation
                denominator = AGGREGATIONS[type(aggregation)].denominator(lengths, max_new_tokens, aggregation)
                self._update_once(rows, minibatch, denominator, frozen, tally)
                done += len(minibatch)
                on_progress(done, len(usable) * self.config.num_epochs)
        return tally.metrics(self.optimiser, self.collective) | described | self._of_adapter()

    def _of_adapter(self) -> dict[str, float]:
        return {} if self.adapter is None else self.adapter.metrics()

    def _update_once(
        self, rows: Sequence[Row], minibatch: Sequence[int], denominator: float, frozen: FrozenLogprobs, tally: Tally
    ) -> None:
        has_kl = self.config.kl_in_loss and not frozen.reference_is_policy  # the KL to oneself is 0, and flat there
        everywhere = has_kl or self.config.entropy_coefficient > 0
        learning = [index for index in minibatch if rows[index]["has_signal"] or everywhere]
        if not learning:
            tally.num_skipped_updates += 1
            return
        self.optimiser.zero_grad()
        losses = []
        sequences = [sequence_of(rows, index) for index in learning]
        for batch in self.shared.batches(self.layout, sequences, self.config.micro_batch_tokens):
            if batch is None:
                with in_precision(self.dtype, self.device):
                    idle = self.shared.idle()
                idle.backward()  # type: ignore[no-untyped-call]
                continue
            found = self._objective(rows, batch, denominator, frozen)
            found.loss.backward()  # type: ignore[no-untyped-call]
            losses.append(found.loss.detach())
            tally.add_tokens(found)
        loss = self.collective.total(torch.stack(losses).sum() if losses else torch.zeros((), device=self.device))
        try:
            if not bool(torch.isfinite(loss)):
                raise NonFinite(f"the loss is {float(loss)}")
            tally.add_update(loss, self.optimiser.update())
        except NonFinite as error:
            culprits = self._culprits(rows, learning, denominator, frozen)
            raise NonFinite(f"{error}; caused by rows (group_id/sample_index): {', '.join(culprits)}") from error

    def _objective(
        self, rows: Sequence[Row], batch: CompletionBatch, denominator: float, frozen: FrozenLogprobs
    ) -> Objective:
        entropy = entropy_of if self.config.entropy_coefficient > 0 else detached_entropy
        with in_precision(self.dtype, self.device):
            found = self.shared.logprobs(batch, temperatures(rows, batch), entropy)
        return objective(
            MicroBatch(
                policy_logprobs_BC=found.logprobs_BC,
                proximal_logprobs_BC=frozen.proximal(batch, found.logprobs_BC),
                reference_logprobs_BC=frozen.reference(batch, found.logprobs_BC),
                advantages_BC=advantages(rows, batch),
                mask_BC=frozen.takes_part(batch),
                correction_BC=frozen.factor(batch),
                entropy_BC=found.entropy_BC,
            ),
            self.config,
            denominator,
        )

    def _culprits(
        self, rows: Sequence[Row], indices: Sequence[int], denominator: float, frozen: FrozenLogprobs
    ) -> list[str]:
        """The rows whose own loss or gradient is not finite; all of them when only their sum is."""
        culprits = []
        for index in indices:
            self.optimiser.zero_grad()
            found = self._objective(rows, pad([sequence_of(rows, index)], self.device), denominator, frozen)
            found.loss.backward()  # type: ignore[no-untyped-call]
            tensors = [found.loss, *(piece(p.grad) for p in self.model.parameters() if p.grad is not None)]
            if not all(self.collective.gathered(all(bool(torch.isfinite(each).all()) for each in tensors))):
                culprits.append(index)
        self.optimiser.zero_grad()
        return [f"{rows[index]['group_id']}/{rows[index]['sample_index']}" for index in culprits or indices]


def advantages(rows: Sequence[Row], batch: CompletionBatch) -> Tensor:
    """[B, C] float32: the outcome advantage repeated over the completion, or the advantages by token."""
    advantages_BC = torch.zeros(len(batch.rows), int(batch.lengths_B.max()), dtype=torch.float32)
    for position, row in enumerate(batch.rows):
        by_token = rows[row]["token_advantages"]
        length = len(rows[row]["completion_token_ids"])
        advantages_BC[position, :length] = torch.tensor(
            [rows[row]["advantage"]] * length if by_token is None else by_token, dtype=torch.float32
        )
    return advantages_BC.to(batch.lengths_B.device)
