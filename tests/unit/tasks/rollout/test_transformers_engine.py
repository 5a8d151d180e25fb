"""The engine in this process: every kind of model, a cache within its bounds, rows that come and go."""

import math

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tasks.rollout import batch as batch_module
from tasks.rollout.batch import Batch
from tasks.rollout.cache import RowCache, check_attention_only
from tasks.rollout.config import SamplingConfig, TransformersEngineConfig
from tasks.rollout.transformers_engine import TransformersEngine
from tests.conftest import make_gpt2, make_llama
from tests.unit.tasks.rollout.engine_builders import TOKENIZER, plain_logprobs, request, sampled, silent

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


def make(model_class, config_class, **settings):
    def build():
        torch.manual_seed(0)
        return model_class(config_class(**{**SIZES, **settings})).eval()

    return build


MODELS = {
    "llama": make_llama,
    "llama, grouped queries": lambda: make_llama(num_attention_heads=4, num_key_value_heads=2),
    "llama, eager": lambda: make_llama(attn_implementation="eager"),
    "gpt2": make_gpt2,
    "qwen2": make(Qwen2ForCausalLM, Qwen2Config),
    "qwen3": make(Qwen3ForCausalLM, Qwen3Config),
    "mistral, window of 4": make(MistralForCausalLM, MistralConfig, sliding_window=4),
    "gemma2, window of 4": make(
        Gemma2ForCausalLM, Gemma2Config, sliding_window=4, layer_types=["sliding_attention", "full_attention"]
    ),
    "gemma3, window of 4": make(
        Gemma3ForCausalLM, Gemma3TextConfig, sliding_window=4, layer_types=["sliding_attention", "full_attention"]
    ),
}
REQUESTS = [request(str(index), length=1 + 7 * index % 17, samples=2 + index % 3) for index in range(8)]
PROMPTS = {each.group_id: each.prompt_token_ids for each in REQUESTS}


def engine(model, **settings):
    return TransformersEngine(model, TOKENIZER, TransformersEngineConfig(**settings))


@pytest.fixture
def calls(monkeypatch):
    """What happens to the cache: (what, rows or columns)."""
    seen = []

    def watch(name, about):
        real = getattr(Batch, name)

        def watched(self, *arguments):
            seen.append((name, about(self, *arguments)))
            return real(self, *arguments)

        monkeypatch.setattr(Batch, name, watched)

    watch("_read", lambda self, prompts: tuple(prompts))
    watch("_move", lambda self, end: end)
    watch("admit_waiting", lambda self: len(self.rows))
    watch("decode", lambda self: len(self.rows))
    return seen


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [64, 5, 1])
def test_log_probabilities_are_those_of_a_plain_forward(name, rows):
    model = MODELS[name]()
    found = sampled(engine(model, max_batch_rows=rows), REQUESTS, tokens=12, temperature=0.7)
    assert len(found) == sum(len(each.seeds) for each in REQUESTS)
    for (group, _), each in found.items():
        expected = plain_logprobs(model, PROMPTS[group], each, 0.7)
        assert each.sampler_logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_has_the_same_tokens_whatever_the_batch(name):
    model = MODELS[name]()
    wide = sampled(engine(model), REQUESTS)
    for rows in (1, 3, 6):
        narrow = sampled(engine(model, max_batch_rows=rows), REQUESTS[::-1])
        for key, each in narrow.items():
            assert each.completion_token_ids == wide[key].completion_token_ids


def test_every_prompt_is_read_once_however_many_rows_there_are(calls):
    for rows in (64, 7, 1):
        calls.clear()
        sampled(engine(make_llama(), max_batch_rows=rows), REQUESTS)
        read = [prompt for name, prompts in calls if name == "_read" for prompt in prompts]
        assert sorted(read) == sorted(PROMPTS.values())


def test_rows_of_one_group_enter_one_by_one_when_the_batch_is_smaller(calls):
    model = make_llama()
    big = [request("big", length=9, samples=10)]
    found = sampled(engine(model, max_batch_rows=3), big, tokens=12)
    assert len([1 for name, _ in calls if name == "_read"]) == 1
    assert len([1 for name, _ in calls if name == "admit_waiting"]) >= 3
    alone = sampled(engine(model), big, tokens=12)
    for key, each in found.items():
        assert each.completion_token_ids == alone[key].completion_token_ids
        assert each.sampler_logprobs == pytest.approx(plain_logprobs(model, big[0].prompt_token_ids, each), abs=1e-4)


def test_a_finished_row_is_computed_no_more(calls):
    found = sampled(engine(make_llama()), REQUESTS, tokens=12)
    # The first token comes from the prompt; every other one from a step in which the row takes part.
    decoded = sum(rows for name, rows in calls if name == "decode")
    assert decoded == sum(len(each.completion_token_ids) - 1 for each in found.values())


def test_columns_are_won_back_by_moving_the_rows(calls):
    model = make_llama(max_position_embeddings=512)
    requests = [request(str(index), length=1 + index % 3, samples=1) for index in range(40)]
    model.generation_config.eos_token_id = []
    found = sampled(engine(model, max_batch_rows=4), requests, tokens=10)
    moves = [end for name, end in calls if name == "_move"]
    assert moves
    assert max(moves) <= 13
    for (group, _), each in found.items():
        prompt = requests[int(group)].prompt_token_ids
        assert each.sampler_logprobs == pytest.approx(plain_logprobs(model, prompt, each), abs=1e-4)


def test_a_longer_prompt_may_enter_after_shorter_ones():
    model = make_llama()
    batch = Batch(model, 4, 40)
    rows = engine(model)._groups(
        [request("a", length=2, samples=1), request("b", length=9, samples=1)], SamplingConfig(max_new_tokens=4)
    )[0]
    for each, token in zip(rows, (5, 6), strict=True):
        row = batch.admit([each])[0][0]
        row.ids.append(token)
        row.length += 1
    logits = batch.decode()
    for row, found in zip(batch.rows, logits, strict=True):
        with torch.no_grad():
            expected = model(input_ids=torch.tensor([[*row.request.prompt_token_ids, *row.ids]])).logits[0, -1]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_prompts_are_read_in_parts_that_bound_the_memory(monkeypatch, calls):
    monkeypatch.setattr(batch_module, "MAX_PREFILL_TOKENS", 20)
    monkeypatch.setattr("tasks.rollout.transformers_engine.MAX_PREFILL_TOKENS", 20)
    sampled(engine(make_llama()), REQUESTS)
    parts = [prompts for name, prompts in calls if name == "_read"]
    assert all(len(part) == 1 or len(part) * max(map(len, part)) <= 20 for part in parts)
    assert len(parts) > 3


@pytest.mark.parametrize("tokens", [60, 100, 200])
def test_the_cache_stays_within_the_token_budget(tokens, monkeypatch):
    shapes = []
    real = RowCache.__init__
    monkeypatch.setattr(
        RowCache,
        "__init__",
        lambda self, config, rows, columns: shapes.append((rows, columns)) or real(self, config, rows, columns),
    )
    wide = sampled(engine(make_llama()), REQUESTS)
    narrow = sampled(engine(make_llama(), max_batch_tokens=tokens * 2), REQUESTS)
    assert shapes[1][0] * shapes[1][1] <= tokens * 2 < shapes[0][0] * shapes[0][1]
    assert {key: each.completion_token_ids for key, each in wide.items()} == {
        key: each.completion_token_ids for key, each in narrow.items()
    }


def test_a_budget_below_two_rows_names_the_setting_and_the_least_value():
    with pytest.raises(ValueError, match=r"max_batch_tokens 50 is .* 18 tokens: .*max_batch_tokens to 56 or more"):
        sampled(engine(make_llama(), max_batch_tokens=50), [request("a", length=10)])
    sampled(engine(make_llama(), max_batch_tokens=56), [request("a", length=10)])


def test_weights_changed_in_place_are_used_by_the_same_engine_and_by_a_new_one():
    """Layers large enough to be packed."""
    model = make_llama(hidden_size=256, intermediate_size=512, initializer_range=0.05)
    one = request("a", samples=8)
    same = engine(model)
    before = sampled(same, [one])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    for each_engine in (same, engine(model)):
        after = sampled(each_engine, [one])
        assert after != before
        for each in after.values():
            assert each.sampler_logprobs == pytest.approx(plain_logprobs(model, one.prompt_token_ids, each), abs=1e-4)


def test_the_model_trains_as_before_after_a_rollout():
    model = make_llama(hidden_size=256, intermediate_size=512, initializer_range=0.05)
    ids = torch.tensor([[1, 5, 6, 7]])
    expected = torch.autograd.grad(model(input_ids=ids, labels=ids).loss, model.lm_head.weight)[0]
    sampled(engine(model), [request("a", samples=8)])
    found = torch.autograd.grad(model(input_ids=ids, labels=ids).loss, model.lm_head.weight)[0]
    assert torch.equal(found, expected)


def test_a_row_whose_logits_are_no_distribution_is_aborted_and_the_others_go_on():
    model = make_llama()
    real, count = model.lm_head.forward, [0]

    def spoilt(hidden):
        logits = real(hidden)
        count[0] += 1
        if count[0] == 3:
            logits[1] = math.nan
        return logits

    model.lm_head.forward = spoilt
    model.generation_config.eos_token_id = []
    found = sampled(engine(model), [request("a", samples=3)], tokens=30)
    aborted = [each for each in found.values() if each.finish_reason == "abort"]
    assert [len(each.completion_token_ids) for each in aborted] == [2]
    assert all(len(each.completion_token_ids) == len(each.sampler_logprobs) for each in found.values())
    assert len(found) == 3


def test_a_request_without_seeds_is_answered_with_nothing():
    result = engine(make_llama()).generate([request("a", samples=0)], SamplingConfig(max_new_tokens=3), silent)
    assert (result.completions, result.skipped) == ([], [])


def test_a_model_whose_layers_keep_another_state_is_refused():
    from transformers import Qwen3NextConfig

    with pytest.raises(ValueError, match="qwen3_next has layers with a state of their own"):
        check_attention_only(Qwen3NextConfig(num_hidden_layers=4))
