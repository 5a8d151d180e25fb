"""The engines that the contract is held against, and what their tests share. A new engine is one row of ``ENGINES``."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tasks.policy.characters import build_tokenizer
from tasks.rollout.config import SamplingConfig, ScriptedEngineConfig, TransformersEngineConfig
from tasks.rollout.engine import Completion, Engine, GroupRequest
from tasks.rollout.scripted_engine import ScriptedEngine
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.values.seeds import derive_seed

TOKENIZER = build_tokenizer()
EOS = TOKENIZER.eos_token_id


@dataclass(frozen=True)
class EngineRow:
    """How an engine is made over a model: ``build(model, tokenizer, rows decoded together, stack)``. What must be closed
    after the test (a server, a folder) is put on the stack. ``samples_the_model``: a script does not."""

    build: Callable[[PreTrainedModel, PreTrainedTokenizerBase, int, ExitStack], Engine]
    samples_the_model: bool = True
    marks: tuple[pytest.MarkDecorator, ...] = ()


def _transformers(model, tokenizer, rows, stack):
    return TransformersEngine(model, tokenizer, TransformersEngineConfig(max_batch_rows=rows))


def _scripted(model, tokenizer, rows, stack):
    script = ("<answer>{answer}</answer>", "1+1", "2")
    return ScriptedEngine(model, tokenizer, ScriptedEngineConfig(kind="scripted", script=script))


ENGINES = {
    "transformers": EngineRow(_transformers),
    "scripted": EngineRow(_scripted, samples_the_model=False),
}


def every_engine():
    """Parameters: the name of every engine."""
    return [pytest.param(name, marks=row.marks) for name, row in ENGINES.items()]


def sampling_engines():
    """Parameters: the names of the engines that sample the model."""
    return [pytest.param(name, marks=row.marks) for name, row in ENGINES.items() if row.samples_the_model]


def silent(done, total):
    return None


def request(name, *, length=3, samples=4, answer="7", seed=0, ids=None, limit=None):
    seeds = tuple(derive_seed(seed, name, index) for index in range(samples))
    prompt = tuple(3 + (index % 20) for index in range(length)) if ids is None else tuple(ids)
    return GroupRequest(name, f"p-{name}", prompt, answer, seeds, limit)


def sampled(engine, requests, *, tokens=8, temperature=1.0, stop=()):
    """The engine's completions by group and sample index."""
    sampling = SamplingConfig(max_new_tokens=tokens, temperature=temperature, stop=stop)
    result = engine.generate(requests, sampling, silent)
    return {(each.group_id, each.sample_index): each for each in result.completions}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Eight tokens, one per byte: the bytes C3, A9 and A8, which make é and è, and letters."""
    tokens = [
        "<s>",
        "<unk>",
        "</s>",
        "\u00c3",
        "\u00a9",
        "\u00a8",
        "a",
        "b",
    ]  # a byte-level vocabulary's names of bytes
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def plain_logprobs(model: PreTrainedModel, prompt, completion: Completion, temperature: float = 1.0) -> list[float]:
    """Log-probabilities of the completion's tokens from one forward pass over the unpadded ids, in float64."""
    ids = torch.tensor([[*prompt, *completion.completion_token_ids]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].double() / temperature
    tokens = torch.tensor(completion.completion_token_ids)[:, None]
    return torch.log_softmax(logits, -1).gather(1, tokens).flatten().tolist()
