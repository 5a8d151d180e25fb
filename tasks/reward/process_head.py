"""The process reward model: a policy's backbone and a scalar head that is read at the end of every step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.policy.scalar_head import ScalarHeadModel

PROCESS_HEAD_FILE = "process_head.safetensors"


class ProcessRewardModel(ScalarHeadModel):
    """Log-odds that a step is right, read at the step's last token."""

    head_file = PROCESS_HEAD_FILE
    what = "process reward model"

    def forward(self, input_ids_BT: Tensor, lengths_B: Tensor, rows_N: Tensor, columns_N: Tensor) -> Tensor:
        """Logits [N], float32: one per step, read at (row, column) of right-padded rows.

        A causal backbone reads nothing behind a step's end, so a step has the same logit whatever follows it.

        Source: the per-token head of Let's Verify Step by Step, arXiv:2305.20050, section 2.6; read at step ends as in
        Math-Shepherd, arXiv:2312.08935, section 3.3.
        """
        hidden_BTD = self.hidden(input_ids_BT, lengths_B)
        logits_N: Tensor = self.head(hidden_BTD[rows_N, columns_N]).squeeze(-1)
        return logits_N.float()


def step_columns(
    positions: Sequence[Sequence[int]], lengths: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """rows_N and columns_N of all steps of a batch, row by row.

    Args:
        positions: per row, where its steps end, counted from the row's first token.
        lengths: per row, its tokens without padding; one per row of ``positions``.

    Raises:
        ValueError: a position is behind its row: there only padding could be read.
    """
    for row, (ends, length) in enumerate(zip(positions, lengths, strict=True)):
        if wrong := [end for end in ends if not 0 <= end < length]:
            raise ValueError(f"step end {wrong[0]} is not within the {length} tokens of row {row} of the batch")
    rows = [row for row, ends in enumerate(positions) for _ in ends]
    columns = [end for ends in positions for end in ends]
    return torch.tensor(rows, dtype=torch.long, device=device), torch.tensor(columns, dtype=torch.long, device=device)
