"""The reward model: a policy's backbone and a scalar head."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from tasks.policy.scalar_head import ScalarHeadModel

HEAD_FILE = "reward_head.safetensors"
CALIBRATION_FILE = "reward_calibration.json"


class RewardModel(ScalarHeadModel):
    """Scores a sequence at its last token, or at any others; a higher score is better.

    Trained on pairs, differences of scores are log-odds; trained on points or steps, scores are.
    """

    head_file = HEAD_FILE
    what = "reward model"
    temperature: float = 1.0
    """What scores are divided by before they are log-odds; fitted on held-out labels, saved with the weights."""

    @classmethod
    def load(cls, folder: Path, *, device: str) -> Self:
        """A saved model with its temperature: 1 where none was saved, as before there was a calibration.

        Raises:
            ValueError: the folder has no reward head, or its temperature is no positive number.
        """
        model = super().load(folder, device=device)
        path = folder / CALIBRATION_FILE
        if not path.is_file():
            return model
        temperature = json.loads(path.read_text())["temperature"]
        if not (isinstance(temperature, float) and 0 < temperature < math.inf):
            raise ValueError(f"{path} has the temperature {temperature}, which is no positive number")
        model.temperature = temperature
        return model

    def save(self, folder: Path) -> None:
        """Backbone, head, temperature and the tokenizer's files."""
        super().save(folder)
        (folder / CALIBRATION_FILE).write_text(json.dumps({"temperature": self.temperature}) + "\n")

    def forward(self, input_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Scores [B], float32, read at position ``lengths_B - 1`` of each right-padded row.

        The position comes from the recorded length. Looking for the last token that is not the pad id would stop one
        token early wherever pad and end-of-sequence are the same id.
        """
        rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
        return self._read(input_ids_BT, lengths_B, rows_B, lengths_B - 1)

    def scores_at(self, input_ids_BT: Tensor, lengths_B: Tensor, positions: Sequence[Sequence[int]]) -> Tensor:
        """Scores [N], float32, at the given positions of each right-padded row; row by row, position by position.

        Raises:
            ValueError: a position lies outside its row's recorded length.
        """
        for row, (given, length) in enumerate(zip(positions, lengths_B.tolist(), strict=True)):
            if given and not 0 <= min(given) <= max(given) < length:
                raise ValueError(f"row {row} has {length} tokens and is to be read at {list(given)}")
        rows = [row for row, given in enumerate(positions) for _ in given]
        at = [position for given in positions for position in given]
        rows_N, positions_N = torch.tensor(
            [rows, at], dtype=torch.long, device=lengths_B.device
        )  # long also when empty
        return self._read(input_ids_BT, lengths_B, rows_N, positions_N)

    def _read(self, input_ids_BT: Tensor, lengths_B: Tensor, rows_N: Tensor, positions_N: Tensor) -> Tensor:
        hidden_BTD = self.hidden(input_ids_BT, lengths_B)
        scores_N: Tensor = self.head(hidden_BTD[rows_N, positions_N]).squeeze(-1)
        return scores_N.float()
