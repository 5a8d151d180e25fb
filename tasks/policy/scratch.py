"""A small Llama and its tokenizer, made and trained on the spot."""

from collections.abc import Callable

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from tasks.policy.characters import build_tokenizer
from tasks.policy.config import ScratchPolicy
from tasks.policy.warm_start import train
from tasks.values.seeds import derive_seed


def make_scratch(
    config: ScratchPolicy, *, seed: int, on_progress: Callable[[int, int], None]
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase, dict[str, float]]:
    """The trained model in float32, its tokenizer, and what the training measured (see ``warm_start.train``)."""
    tokenizer = build_tokenizer(config.max_positions)
    model = initialise(config, tokenizer, seed=derive_seed(seed, "weights"))
    metrics = train(model, tokenizer, config.warm_start, seed=seed, on_progress=on_progress)
    return model, tokenizer, {**metrics, "num_parameters": float(model.num_parameters())}


def initialise(config: ScratchPolicy, tokenizer: PreTrainedTokenizerBase, *, seed: int) -> LlamaForCausalLM:
    """An untrained Llama with tied embeddings; the caller's random state is left as it was."""
    ids = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    llama = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_heads,
        max_position_embeddings=config.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        initializer_range=config.initializer_range,
        tie_word_embeddings=True,
        **ids,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(llama)
    model.generation_config = GenerationConfig(**ids)
    return model
