"""Read and write model folders in the Hugging Face layout: safetensors and JSON only, no code from the folder."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase


def load_model(folder: Path, *, device: str) -> PreTrainedModel:
    """The causal language model of a folder, in float32 and eval mode.

    Eval mode turns dropout off: with it, two forward passes of unchanged weights would differ, and a ratio of 1 with them.
    """
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    return model.to(device).eval()  # type: ignore[no-any-return]


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder."""
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)  # type: ignore[no-any-return]


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    *,
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights, configs and tokenizer, so that transformers and vLLM read the folder as it is.

    Args:
        weights: the state dictionary to write in place of the model's own, which may lie in pieces.
    """
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
