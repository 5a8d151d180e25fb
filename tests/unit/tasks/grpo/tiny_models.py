"""Tiny random models of every family that is tested, and samples to train them on."""

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.conftest import make_gpt2, make_llama

PROMPT = [1, 5, 6]
SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


def made(config_class, model_class, **changes):
    torch.manual_seed(0)
    return model_class(config_class(**{**SIZES, **changes})).eval()


MODELS = {
    "llama": make_llama,
    "gpt2": make_gpt2,
    "qwen2": lambda: made(Qwen2Config, Qwen2ForCausalLM),
    "qwen3": lambda: made(Qwen3Config, Qwen3ForCausalLM),
    "gemma2": lambda: made(Gemma2Config, Gemma2ForCausalLM, sliding_window=48),
    "gemma3": lambda: made(Gemma3TextConfig, Gemma3ForCausalLM, sliding_window=48),
}


def samples():
    rows = []
    for group, prompt in (("g", PROMPT), ("h", [1, 4])):
        for index in range(4):
            ids = [(index * 7 + position * 3 + len(prompt)) % 29 + 3 for position in range(2 + 2 * index)]
            rows.append(
                {
                    "group_id": group,
                    "sample_index": index,
                    "prompt_token_ids": prompt,
                    "completion_token_ids": ids,
                    "sampler_logprobs": None,
                    "temperature": 1.0,
                    "advantage": [1.0, -0.5, -0.75, 0.25][index],
                    "token_advantages": None,
                    "is_masked": False,
                    "has_signal": True,
                }
            )
    return rows


NEEDED = {"cispo": {"objective": {"clip_high": 4.0}}, "ppo": {"critic": {"optimiser": {"learning_rate": 1e-2}}}}
