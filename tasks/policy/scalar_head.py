"""A policy's backbone with one number per position: what reward models and critics have in common."""

import shutil
from pathlib import Path
from typing import ClassVar, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
)


class ScalarHeadModel(nn.Module):
    """A backbone of its own and a linear head from its last hidden state to one number."""

    head_file: ClassVar[str]
    what: ClassVar[str]

    def __init__(self, backbone: PreTrainedModel, head: nn.Linear, tokenizer_folder: Path) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self._tokenizer_folder = tokenizer_folder

    @classmethod
    def from_policy(cls, folder: Path, *, device: str, seed: int) -> Self:
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
    def load(cls, folder: Path, *, device: str) -> Self:
        """A saved model. A folder without this kind's head (a policy's, say) is a ValueError."""
        if not (folder / cls.head_file).is_file():
            raise ValueError(f"{folder} is no {cls.what}: it has no {cls.head_file}; make one with from_policy")
        backbone = _backbone(folder, device)
        head = nn.Linear(backbone.config.hidden_size, 1)
        head.load_state_dict(load_file(folder / cls.head_file))
        return cls(backbone, head.to(device), folder).eval()

    def save(self, folder: Path) -> None:
        """Backbone, head and the tokenizer's files."""
        self.backbone.save_pretrained(folder)
        save_file({name: value.contiguous() for name, value in self.head.state_dict().items()}, folder / self.head_file)
        for pattern in TOKENIZER_FILES:
            for file in self._tokenizer_folder.glob(pattern):
                shutil.copyfile(file, folder / file.name)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def hidden(self, input_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """[B, T, D] last hidden states of right-padded rows; the attention mask comes from the recorded lengths."""
        mask_BT = torch.arange(input_ids_BT.shape[1], device=input_ids_BT.device) < lengths_B[:, None]
        hidden_BTD: Tensor = self.backbone(
            input_ids=input_ids_BT, attention_mask=mask_BT.long(), use_cache=False
        ).last_hidden_state
        return hidden_BTD


def _backbone(folder: Path, device: str) -> PreTrainedModel:
    model = AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    return model.to(device)  # type: ignore[no-any-return]
