"""The outcome reward model: a policy's backbone and a scalar head."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

HEAD_FILE = "reward_head.safetensors"
TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
)


class RewardModel(nn.Module):
    """Scores a sequence at its last token; a higher score is better, differences of scores are log-odds."""

    def __init__(self, backbone: PreTrainedModel, head: nn.Linear, tokenizer_folder: Path) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self._tokenizer_folder = tokenizer_folder

    @classmethod
    def from_policy(cls, folder: Path, *, device: str, seed: int) -> "RewardModel":
        """The policy's backbone with a new head: weights normal with standard deviation 1/sqrt(hidden + 1), bias 0."""
        backbone = _backbone(folder, device)
        hidden = backbone.config.hidden_size
        head = nn.Linear(hidden, 1)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            head.weight.copy_(torch.randn(1, hidden, generator=generator) / (hidden + 1) ** 0.5)
            head.bias.zero_()
        return cls(backbone, head.to(device), folder).eval()

    @classmethod
    def load(cls, folder: Path, *, device: str) -> "RewardModel":
        """A saved reward model. A folder without a head (a policy's, say) is a ValueError."""
        if not (folder / HEAD_FILE).is_file():
            raise ValueError(f"{folder} is no reward model: it has no {HEAD_FILE}; make one with from_policy")
        backbone = _backbone(folder, device)
        head = nn.Linear(backbone.config.hidden_size, 1)
        head.load_state_dict(load_file(folder / HEAD_FILE))
        return cls(backbone, head.to(device), folder).eval()

    def save(self, folder: Path) -> None:
        """Backbone, head and the tokenizer's files."""
        self.backbone.save_pretrained(folder)
        save_file({name: value.contiguous() for name, value in self.head.state_dict().items()}, folder / HEAD_FILE)
        for pattern in TOKENIZER_FILES:
            for file in self._tokenizer_folder.glob(pattern):
                shutil.copyfile(file, folder / file.name)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def forward(self, input_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Scores [B], float32, read at position ``lengths_B - 1`` of each right-padded row.

        The position comes from the recorded length. Looking for the last token that is not the pad id would stop one
        token early wherever pad and end-of-sequence are the same id.
        """
        mask_BT = torch.arange(input_ids_BT.shape[1], device=input_ids_BT.device) < lengths_B[:, None]
        hidden_BTD = self.backbone(
            input_ids=input_ids_BT, attention_mask=mask_BT.long(), use_cache=False
        ).last_hidden_state
        rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
        scores_B: Tensor = self.head(hidden_BTD[rows_B, lengths_B - 1]).squeeze(-1)
        return scores_B.float()


def _backbone(folder: Path, device: str) -> PreTrainedModel:
    model = AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    return model.to(device)  # type: ignore[no-any-return]
