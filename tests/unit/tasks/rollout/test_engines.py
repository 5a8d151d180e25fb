"""The contract of every engine, and the distribution of the sampling one."""

import math
from collections import Counter

import pytest
import torch

from tasks.policy.characters import build_tokenizer
from tasks.rollout.config import SamplingConfig, ScriptedEngineConfig, TransformersEngineConfig
from tasks.rollout.engine import (
    Completion,
    EngineError,
    GenerationResult,
    Greedy,
    GroupRequest,
    PolicyWeights,
    Skipped,
    check_result,
)
from tasks.rollout.engines import make_engine
from tasks.rollout.rollouts import completion_rows, requests_for
from tasks.rollout.sampling import sample
from tasks.values.seeds import derive_seed
from tests.conftest import make_gpt2, make_llama

TOKENIZER = build_tokenizer()
EOS = TOKENIZER.eos_token_id
CONFIGS = {
    TransformersEngineConfig: TransformersEngineConfig(),
    ScriptedEngineConfig: ScriptedEngineConfig(kind="scripted", script=("<answer>{answer}</answer>", "1+1", "2")),
}
MODELS = {"llama": make_llama, "gpt2": make_gpt2}


def silent(done, total):
    return None


def request(name, *, length=3, samples=4, answer="7", seed=0):
    seeds = tuple(derive_seed(seed, name, index) for index in range(samples))
    return GroupRequest(name, f"p-{name}", tuple(3 + (index % 20) for index in range(length)), answer, seeds)


def generate(model, requests, *, tokens=8, temperature=1.0, rows=128, stop=()):
    engine = make_engine(TransformersEngineConfig(max_batch_rows=rows), PolicyWeights(model, TOKENIZER))
    return engine.generate(requests, SamplingConfig(max_new_tokens=tokens, temperature=temperature, stop=stop), silent)


@pytest.mark.parametrize("kind", CONFIGS)
class TestContract:
    def engine(self, kind, **model):
        return make_engine(CONFIGS[kind], PolicyWeights(make_llama(**model), TOKENIZER))

    def test_every_sample_is_answered_in_the_order_of_the_requests(self, kind):
        requests = [request("b"), request("a", samples=2), request("c", length=9)]
        result = self.engine(kind).generate(requests, SamplingConfig(max_new_tokens=12), silent)
        check_result(requests, result)
        keys = [(each.group_id, each.sample_index) for each in result.completions]
        assert keys == [(each.group_id, index) for each in requests for index in range(len(each.seeds))]

    def test_the_same_seeds_give_the_same_tokens_and_other_seeds_others(self, kind):
        sampling = SamplingConfig(max_new_tokens=12)
        first = self.engine(kind).generate([request("a", samples=8)], sampling, silent)
        again = self.engine(kind).generate([request("a", samples=8)], sampling, silent)
        other = self.engine(kind).generate([request("a", samples=8, seed=1)], sampling, silent)
        assert first == again
        assert [each.completion_token_ids for each in first.completions] != [
            each.completion_token_ids for each in other.completions
        ]

    def test_a_completion_that_the_limit_cuts_says_length(self, kind):
        result = self.engine(kind).generate([request("a", samples=8)], SamplingConfig(max_new_tokens=2), silent)
        for each in result.completions:
            assert each.finish_reason == ("stop" if each.completion_token_ids[-1] == EOS else "length")
            assert len(each.completion_token_ids) <= 2

    def test_no_request_gives_no_answer(self, kind):
        assert self.engine(kind).generate([], SamplingConfig(max_new_tokens=2), silent) == GenerationResult([], [])


@pytest.mark.parametrize("name", MODELS)
class TestTransformersEngine:
    def test_log_probabilities_are_those_of_a_plain_forward(self, name):
        model = MODELS[name]()
        requests = [request("a"), request("b", length=11), request("c", length=1)]
        result = generate(model, requests, tokens=10, temperature=0.7)
        prompts = {each.group_id: each.prompt_token_ids for each in requests}
        for each in result.completions:
            ids = torch.tensor([[*prompts[each.group_id], *each.completion_token_ids]])
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, len(prompts[each.group_id]) - 1 : -1] / 0.7
            expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(each.completion_token_ids)[:, None])
            assert each.sampler_logprobs == pytest.approx(expected.flatten().tolist(), abs=1e-4)

    def test_a_row_has_the_same_tokens_alone_and_in_company(self, name):
        model = MODELS[name]()
        requests = [request(str(index), length=1 + index % 7, samples=3) for index in range(12)]
        together = {
            (each.group_id, each.sample_index): each.completion_token_ids
            for rows in (128, 5)
            for each in generate(model, requests, rows=rows).completions
        }
        crowded = generate(model, requests, rows=5).completions
        for each in crowded:
            assert each.completion_token_ids == together[each.group_id, each.sample_index]
        for one in requests:
            for each in generate(model, [one]).completions:
                assert each.completion_token_ids == together[each.group_id, each.sample_index]

    def test_greedy_takes_the_most_likely_token_each_time(self, name):
        model = MODELS[name]()
        one = request("a", samples=1)
        engine = make_engine(TransformersEngineConfig(), PolicyWeights(model, TOKENIZER))
        ids = engine.generate([one], Greedy(max_new_tokens=6), silent).completions[0].completion_token_ids
        context = list(one.prompt_token_ids)
        for token in ids:
            with torch.no_grad():
                assert token == int(model(input_ids=torch.tensor([context])).logits[0, -1].argmax())
            context.append(token)


def test_the_sampled_distribution_is_the_softmax_at_the_temperature():
    model = make_llama()
    one = request("a", samples=4000)
    found = Counter(
        each.completion_token_ids[0] for each in generate(model, [one], tokens=1, temperature=1.5).completions
    )
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([one.prompt_token_ids])).logits[0, -1] / 1.5
    expected = (torch.softmax(logits.double(), -1) * 4000).tolist()
    cells = [(found[token], count) for token, count in enumerate(expected) if count >= 5]
    rest = (4000 - sum(seen for seen, _ in cells), 4000 - sum(count for _, count in cells))
    chi_square = sum((seen - count) ** 2 / count for seen, count in [*cells, rest] if count > 0)
    # The upper 1e-4 point of chi-square with k degrees of freedom is below k + 4 sqrt(2k) + 14.
    assert chi_square < len(cells) + 4 * math.sqrt(2 * len(cells)) + 14


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]]).repeat(1000, 1)
    uniforms = torch.cat([torch.linspace(0, 1, 998, dtype=torch.float64)[:-1], torch.tensor([0.0, 0.5, 1 - 2**-53])])
    tokens, logprobs = sample(logits, uniforms.double(), 1.0)
    assert set(tokens.tolist()) == {0, 2}
    assert logprobs.tolist() == pytest.approx([-math.log(2)] * 1000)


def test_every_eos_id_of_the_generation_config_ends_a_completion():
    model = make_llama()
    everything = list(range(4, 32))
    model.generation_config.eos_token_id = everything
    for each in generate(model, [request("a", samples=16)], tokens=30).completions:
        enders = [token in {*everything, EOS} for token in each.completion_token_ids]
        assert each.finish_reason == "stop"
        assert enders == [False] * (len(enders) - 1) + [True]


def test_a_stop_string_ends_the_completion_and_stays_in_its_ids():
    model = make_llama()
    requests = [request("a", samples=32)]
    free = generate(model, requests, tokens=20).completions
    assert any("3" in TOKENIZER.decode(each.completion_token_ids[:-1]) for each in free)
    stopped = 0
    for each in generate(model, requests, tokens=20, stop=("3",)).completions:
        text = TOKENIZER.decode(each.completion_token_ids)
        if "3" in text:
            stopped += 1
            assert text.index("3") == len(text) - 1
            assert each.finish_reason == "stop"
    assert stopped > 3


def test_a_prompt_that_is_too_long_is_skipped_and_shifts_nobody():
    model = make_llama(max_position_embeddings=10)
    requests = [
        request("0", length=4, samples=2),
        request("1", length=12, samples=2),
        request("2", length=6, samples=2),
    ]
    result = generate(model, requests, tokens=50)
    assert [each.group_id for each in result.completions] == ["0", "0", "2", "2"]
    assert result.skipped == [Skipped("1", "p-1", "prompt_too_long")]
    assert all(len(each.completion_token_ids) <= (6 if each.group_id == "0" else 4) for each in result.completions)
    assert generate(model, [requests[1]]).completions == []


def answer(group, index, ids=(5, EOS), logprobs=(-1.0, -1.0), reason="stop"):
    return Completion(group, index, ids, logprobs, reason)


@pytest.mark.parametrize(
    ("completions", "skipped", "message"),
    [
        ([answer("a", 0)], [], "sample 1 of group a was not answered"),
        ([answer("a", 0), answer("a", 1), answer("a", 2)], [], "answered but not asked"),
        ([answer("a", 0), answer("a", 0), answer("a", 1)], [], "answered twice"),
        ([answer("a", 0), answer("z", 1)], [], "group a was not answered"),
        ([answer("a", 0), answer("a", 1, logprobs=(-1.0,))], [], "sample 1 of group a has 1 log-probs for 2"),
        ([answer("a", 0), answer("a", 1)], [Skipped("q", "p", "x")], "group q was skipped but never asked"),
    ],
)
def test_an_answer_that_does_not_fit_the_request_names_the_sample(completions, skipped, message):
    with pytest.raises(EngineError, match=message):
        check_result([request("a", samples=2)], GenerationResult(completions, skipped))


def rows_of(completions, **changes):
    settings = {"tokenizer": TOKENIZER, "eos_ids": frozenset({EOS, 30}), "temperature": 1.0, "policy_digest": "d"}
    requests = [request("a", samples=len(completions))]
    return completion_rows(requests, GenerationResult(completions, []), **{**settings, **changes})


@pytest.mark.parametrize(
    ("ids", "reason", "truncated"),
    [
        ((5, EOS), "stop", False),
        ((5, 6), "stop", False),
        ((5, 30), "stop", False),
        ((5, 6), "length", True),
        ((5, EOS), "length", False),
        ((5, 6), "abort", False),
    ],
)
def test_a_completion_is_truncated_when_the_limit_cut_it_before_its_end(ids, reason, truncated):
    rows, _ = rows_of([answer("a", 0, ids=ids, reason=reason)])
    assert rows[0]["is_truncated"] is truncated
    assert rows[0]["completion_token_ids"] == list(ids)


def test_groups_whose_completions_are_all_the_same_are_counted():
    _, metrics = rows_of([answer("a", index) for index in range(3)])
    assert metrics["num_identical_groups"] == 1
    _, metrics = rows_of([answer("a", 0), answer("a", 1, ids=(6, EOS))])
    assert metrics["num_identical_groups"] == 0


def test_sampled_ids_are_kept_and_never_encoded_again():
    ids = (10, 10, EOS)  # whatever their text would encode to
    rows, _ = rows_of([answer("a", 0, ids=ids, logprobs=(-1.0, -2.0, -3.0))])
    assert rows[0]["completion_token_ids"] == [10, 10, EOS]
    assert rows[0]["sampler_logprobs"] == [-1.0, -2.0, -3.0]


def test_seeds_differ_for_every_prompt_sample_and_iteration_and_survive_another_order():
    selection = [
        {"group_id": f"g{index}", "prompt_id": f"p{index}", "prompt_token_ids": [1], "answer": "1"}
        for index in range(4)
    ]
    seeds = [
        seed
        for iteration in range(3)
        for each in requests_for(selection, num_samples=4, seed_parts=(7, iteration))
        for seed in each.seeds
    ]
    assert len(set(seeds)) == 48
    backwards = requests_for(selection[::-1], num_samples=4, seed_parts=(7, 0))[::-1]
    assert backwards == requests_for(selection, num_samples=4, seed_parts=(7, 0))
