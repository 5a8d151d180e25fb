"""The critic of PPO: the value of each state of a completion, and its training."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.grpo.batch import PaddedBatch, micro_batches, pad
from tasks.grpo.components import CriticConfig
from tasks.grpo.frozen import sequence_of
from tasks.grpo.losses import clipped_value_loss
from tasks.policy.scalar_head import ScalarHeadModel
from tasks.runtime.optimiser import NonFinite, Optimiser
from tasks.runtime.progress import OnProgress

Row = Mapping[str, Any]


class Critic(ScalarHeadModel):
    """Predicts, before each completion token, the return from it on."""

    head_file = "value_head.safetensors"
    what = "critic"

    def forward(self, batch: PaddedBatch) -> Tensor:
        """[B, C] float32 values, C the longest completion, 0 on padding.

        The value of completion token t is read where the token is predicted from: at the position before it.
        """
        hidden_BTD = self.hidden(batch.input_ids_BT, batch.starts_B + batch.lengths_B)
        mask_BC = batch.completion_mask_BC
        rows_N, columns_N = mask_BC.nonzero(as_tuple=True)
        values_N = self.head(hidden_BTD[rows_N, batch.starts_B[rows_N] + columns_N - 1]).squeeze(-1).float()
        return torch.zeros(mask_BC.shape, device=values_N.device).index_put((rows_N, columns_N), values_N)


@torch.no_grad()
def values_by_row(
    critic: Critic, rows: Sequence[Row], indices: Sequence[int], micro_batch_tokens: int
) -> dict[int, Tensor]:
    """Row index -> [T] float32 values of its completion's tokens, on the CPU."""
    found: dict[int, Tensor] = {}
    for part in micro_batches([sequence_of(rows, index) for index in indices], micro_batch_tokens):
        batch = pad(part, str(critic.device))
        values_BC = critic(batch).cpu()
        for position, row in enumerate(batch.rows):
            found[row] = values_BC[position, : int(batch.lengths_B[position])]
    return found


class CriticTrainer:
    """Trains ``critic`` in place towards the returns of the samples, in eval mode."""

    def __init__(self, critic: Critic, config: CriticConfig) -> None:
        self.critic = critic.eval()
        self.config = config
        self.optimiser = Optimiser(critic.named_parameters(), config.optimiser)

    @classmethod
    def load(cls, critic: Critic, config: CriticConfig, folder: Path) -> "CriticTrainer":
        """A trainer that goes on from the state in ``folder``; a fresh one when the folder does not exist."""
        trainer = cls(critic, config)
        if folder.exists():
            trainer.optimiser.load(folder)
        return trainer

    def save(self, folder: Path) -> None:
        self.optimiser.save(folder)

    def train(self, rows: Sequence[Row], *, seed: int, on_progress: OnProgress) -> dict[str, float]:
        """``num_epochs`` passes over the rows that take part, each update the token-mean of the clipped squared error.

        Metrics: loss and grad_norm are means over the updates; value_clip_fraction over the tokens of all epochs;
        explained_variance = 1 - Var(returns - values before) / Var(returns). Missing when nothing was trained.

        Raises:
            NonFinite: a loss or gradient is not finite; the critic must not be published.
        """
        usable = sorted(
            (index for index, row in enumerate(rows) if not row["is_masked"]),
            key=lambda index: (rows[index]["group_id"], rows[index]["sample_index"]),
        )
        shuffler = random.Random(seed)  # noqa: S311  # an order, not a secret
        size = self.config.minibatch_completions or max(1, len(usable))
        losses, norms, num_clipped, num_tokens = [], [], 0.0, 0
        metrics = {"num_updates": 0.0} | explained_variance([rows[index] for index in usable])
        for epoch in range(self.config.num_epochs):
            shuffler.shuffle(usable)
            for begin in range(0, len(usable), size):
                minibatch = usable[begin : begin + size]
                loss, norm, clipped = self._update(rows, minibatch)
                losses.append(loss)
                norms.append(norm)
                num_clipped += clipped
                num_tokens += sum(len(rows[index]["returns"]) for index in minibatch)
                on_progress(epoch * len(usable) + begin + len(minibatch), self.config.num_epochs * len(usable))
        if losses:
            metrics |= {
                "num_updates": float(len(losses)),
                "loss": sum(losses) / len(losses),
                "grad_norm": sum(norms) / len(norms),
                "value_clip_fraction": num_clipped / num_tokens,
            }
        return metrics | {"num_updates_total": float(self.optimiser.num_updates)}

    def _update(self, rows: Sequence[Row], minibatch: Sequence[int]) -> tuple[float, float, float]:
        self.optimiser.zero_grad()
        denominator = float(sum(len(rows[index]["returns"]) for index in minibatch))
        losses, clipped = [], []
        for part in micro_batches([sequence_of(rows, index) for index in minibatch], self.config.micro_batch_tokens):
            batch = pad(part, str(self.critic.device))
            loss, is_clipped_BC = clipped_value_loss(
                self.critic(batch),
                _column(rows, batch, "values"),
                _column(rows, batch, "returns"),
                batch.completion_mask_BC.float(),
                denominator=denominator,
                clip_value=self.config.clip_value,
            )
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            clipped.append(is_clipped_BC.sum())
        total = float(torch.stack(losses).sum())
        try:
            if not torch.isfinite(torch.tensor(total)):
                raise NonFinite(f"the critic's loss is {total}")
            return total, self.optimiser.update(), float(torch.stack(clipped).sum())
        except NonFinite as error:
            names = ", ".join(f"{rows[index]['group_id']}/{rows[index]['sample_index']}" for index in minibatch[:8])
            raise NonFinite(f"{error}; in the minibatch that begins with rows {names}") from error


def _column(rows: Sequence[Row], batch: PaddedBatch, name: str) -> Tensor:
    parts = [torch.tensor(rows[row][name], dtype=torch.float32) for row in batch.rows]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(batch.lengths_B.device)


def explained_variance(rows: Sequence[Row]) -> dict[str, float]:
    """1 - Var(R - V) / Var(R) over all tokens; missing when the returns do not vary.

    Source: OpenAI baselines, ``explained_variance``.
    """
    returns = torch.tensor([value for row in rows for value in row["returns"]], dtype=torch.float64)
    values = torch.tensor([value for row in rows for value in row["values"]], dtype=torch.float64)
    if len(returns) < 2 or float(returns.var()) == 0:
        return {}
    return {"explained_variance": 1.0 - float((returns - values).var() / returns.var())}
