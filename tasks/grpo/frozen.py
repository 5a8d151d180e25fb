"""What stays fixed while a step's samples are trained on: log-probabilities, corrections, who takes part."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.grpo.batch import CompletionBatch, TokenSequence
from tasks.grpo.collective import ALONE, SharedModel
from tasks.grpo.components import Layout
from tasks.grpo.config import UpdateConfig
from tasks.grpo.correction import CORRECTIONS, Corrected
from tasks.runtime.views import ModelView

Row = Mapping[str, Any]


def sequence_of(rows: Sequence[Row], index: int) -> TokenSequence:
    return TokenSequence(index, rows[index]["prompt_token_ids"], rows[index]["completion_token_ids"])


def temperatures(rows: Sequence[Row], batch: CompletionBatch) -> Tensor:
    """[B] float32, the temperature each completion was sampled at."""
    values = [rows[row]["temperature"] for row in batch.rows]
    if bad := [value for value in values if not value > 0]:
        raise ValueError(f"temperature {bad[0]} has no log-probabilities to learn from; sample with one above 0")
    return torch.tensor(values, dtype=torch.float32, device=batch.lengths_B.device)


def logprobs_by_row(
    model: PreTrainedModel | ModelView,
    rows: Sequence[Row],
    indices: Sequence[int],
    micro_batch_tokens: int,
    layout: Layout,
) -> dict[int, Tensor]:
    """Row index -> [T] float32 log-probabilities (nats) of its completion's tokens under ``model``, on the CPU."""
    return shared_logprobs_by_row(ALONE.share(model), rows, indices, micro_batch_tokens, layout)


@torch.no_grad()
def shared_logprobs_by_row(
    shared: SharedModel, rows: Sequence[Row], indices: Sequence[int], micro_batch_tokens: int, layout: Layout
) -> dict[int, Tensor]:
    """The same where several processes compute each a part: all of them call it and have all rows afterwards."""
    found: dict[int, Tensor] = {}
    sequences = [sequence_of(rows, index) for index in indices]
    for batch in shared.batches(layout, sequences, micro_batch_tokens):
        if batch is None:
            shared.idle()
            continue
        logprobs_BC = shared.logprobs(batch, temperatures(rows, batch)).logprobs_BC.cpu()
        for position, row in enumerate(batch.rows):
            found[row] = logprobs_BC[position, : int(batch.lengths_B[position])]
    return shared.collective.united(found)


def engine_logprobs(row: Row) -> Tensor:
    """[T] float32: what the engine said of each token; NaN where it said nothing, or nothing finite.

    Engines leave out, or give NaN for, tokens that were nearly certain; an engine may also know none at all.

    Errors: ValueError for another number of log-probabilities than tokens; names the row.
    """
    num_tokens = len(row["completion_token_ids"])
    said = row["sampler_logprobs"]
    if said is None:
        return torch.full((num_tokens,), math.nan)
    if len(said) != num_tokens:
        name = f"{row['group_id']}/{row['sample_index']}"
        raise ValueError(f"row {name} has {len(said)} log-probs for {num_tokens} tokens")
    logprobs_T = torch.tensor([math.nan if value is None else value for value in said], dtype=torch.float32)
    return torch.where(torch.isfinite(logprobs_T), logprobs_T, math.nan)


def num_updates(config: UpdateConfig, num_completions: int) -> int:
    """Optimiser updates that a step of so many completions makes."""
    size = config.minibatch_completions or max(1, num_completions)
    return config.num_epochs * math.ceil(num_completions / size)


class FrozenLogprobs:
    """Per token and row: proximal and reference log-probabilities, the rollout correction, and who takes part.

    The proximal log-probabilities, which the ratio is taken to, are the engine's own. Where the engine gave none they
    are those of the weights before the update, so that the ratio begins at exactly 1 there. Under a rollout correction
    all are those of the weights before the update, and the engine's enter through the correction.

    A step that makes a single update asks no model for the weights before it: they are the weights of the update's own
    forward pass. The same holds for the reference where it is the policy itself, whose KL is then 0 with gradient 0.
    """

    def __init__(
        self,
        policy: SharedModel,
        reference: SharedModel | None,
        rows: Sequence[Row],
        usable: Sequence[int],
        config: UpdateConfig,
        layout: Layout,
    ) -> None:
        self._device = str(policy.model.device)
        corrects = config.rollout_correction.kind != "none"
        is_single = num_updates(config, len(usable)) <= 1
        said = {index: engine_logprobs(rows[index]) for index in usable}
        known = {index: torch.isfinite(logprobs_T) for index, logprobs_T in said.items()}
        self.reference_is_policy = reference is not None and reference.model is policy.model
        missing = [
            index
            for index in usable
            if corrects or (not is_single and (self.reference_is_policy or not bool(known[index].all())))
        ]
        budget = config.micro_batch_tokens
        before = shared_logprobs_by_row(policy, rows, missing, budget, layout)
        self._proximal: dict[int, Tensor] = {}
        self._corrected: dict[int, Corrected] = {}
        differences = []
        correct = CORRECTIONS[type(config.rollout_correction)]
        for index in usable:
            trainer_T = before.get(index, said[index])
            engine_T = torch.where(known[index], said[index], trainer_T)
            self._proximal[index] = trainer_T if corrects else engine_T
            log_weight_T = trainer_T - engine_T if corrects else torch.zeros_like(engine_T)
            self._corrected[index] = correct(log_weight_T, known[index], config.rollout_correction)
            differences.append(log_weight_T[known[index]])
        self._reference: dict[int, Tensor] | None = before
        if not self.reference_is_policy:
            self._reference = (
                None if reference is None else shared_logprobs_by_row(reference, rows, usable, budget, layout)
            )
        self.reference_is_policy = self.reference_is_policy and is_single
        unknown = sum(int((~is_known_T).sum()) for is_known_T in known.values())
        self.metrics = {"num_recomputed_logprobs": float(unknown)}
        if corrects:
            self.metrics |= self._correction_metrics(torch.cat(differences or [torch.zeros(0)]), known)

    def num_tokens(self, index: int) -> int:
        """Tokens of the row that take part."""
        return int(self._corrected[index].takes_part_T.sum())

    def proximal(self, batch: CompletionBatch, policy_logprobs_BC: Tensor) -> Tensor:
        """[B, C]; where nothing is known but the policy of this very forward pass, that, without its gradient."""
        proximal_BC = self._padded(self._proximal, batch)
        return torch.where(torch.isnan(proximal_BC), policy_logprobs_BC.detach(), proximal_BC)

    def reference(self, batch: CompletionBatch, policy_logprobs_BC: Tensor) -> Tensor | None:
        """[B, C], None without a reference."""
        if self.reference_is_policy:
            return policy_logprobs_BC.detach()
        return None if self._reference is None else self._padded(self._reference, batch)

    def factor(self, batch: CompletionBatch) -> Tensor:
        """[B, C] float32, the correction of each token's policy term."""
        return self._padded({row: self._corrected[row].factor_T for row in batch.rows}, batch)

    def takes_part(self, batch: CompletionBatch) -> Tensor:
        """[B, C] bool, false on padding."""
        return self._padded({row: self._corrected[row].takes_part_T for row in batch.rows}, batch)

    def _padded(self, by_row: dict[int, Tensor], batch: CompletionBatch) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence([by_row[row] for row in batch.rows], batch_first=True).to(self._device)

    def _correction_metrics(self, differences_N: Tensor, known: Mapping[int, Tensor]) -> dict[str, float]:
        """Raw and used weights, over the tokens whose engine log-probability is known; missing when there is none."""
        if not len(differences_N):
            return {}
        of_known = [
            torch.stack(
                (each.raw_T[known[index]], each.factor_T[known[index]], each.takes_part_T[known[index]].float())
            )
            for index, each in self._corrected.items()
        ]
        raw_N, factor_N, takes_part_N = torch.cat(of_known, dim=1).double()
        metrics = {
            "engine_difference_mean": float(differences_N.double().abs().mean()),
            "engine_difference_max": float(differences_N.abs().max()),
            "correction_raw_mean": float(raw_N.mean()),
            "correction_raw_max": float(raw_N.max()),
            "num_corrected_tokens": float(((raw_N != factor_N) | (takes_part_N == 0)).sum()),
            "num_tokens_masked_by_correction": float((takes_part_N == 0).sum()),
        }
        if takes_part_N.any():
            metrics["correction_mean"] = float(factor_N[takes_part_N > 0].mean())
        return metrics
