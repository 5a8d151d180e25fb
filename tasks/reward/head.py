"""The outcome reward model: a policy's backbone and a scalar head."""

import torch
from torch import Tensor

from tasks.policy.scalar_head import ScalarHeadModel

HEAD_FILE = "reward_head.safetensors"


class RewardModel(ScalarHeadModel):
    """Scores a sequence at its last token; a higher score is better, differences of scores are log-odds."""

    head_file = HEAD_FILE
    what = "reward model"

    def forward(self, input_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Scores [B], float32, read at position ``lengths_B - 1`` of each right-padded row.

        The position comes from the recorded length. Looking for the last token that is not the pad id would stop one
        token early wherever pad and end-of-sequence are the same id.
        """
        hidden_BTD = self.hidden(input_ids_BT, lengths_B)
        rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
        scores_B: Tensor = self.head(hidden_BTD[rows_B, lengths_B - 1]).squeeze(-1)
        return scores_B.float()
