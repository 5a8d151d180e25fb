"""What every engine owes its callers."""

import math
from collections import Counter
from contextlib import ExitStack

import pytest
import torch

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engine import GenerationResult, Greedy, check_result
from tests.conftest import make_llama
from tests.unit.tasks.rollout.engine_builders import (
    ENGINES,
    EOS,
    TOKENIZER,
    byte_tokenizer,
    every_engine,
    plain_logprobs,
    request,
    sampled,
    sampling_engines,
    silent,
)

PROMPTS = [request(str(index), length=1 + 5 * index % 13, samples=3) for index in range(9)]


@pytest.fixture
def build():
    """An engine by name over a model; what it started is closed after the test."""
    with ExitStack() as stack:

        def engine(name, model=None, rows=128, tokenizer=TOKENIZER):
            return ENGINES[name].build(model or make_llama(), tokenizer, rows, stack)

        yield engine


@pytest.mark.parametrize("name", every_engine())
class TestEveryEngine:
    def test_every_sample_is_answered_in_the_order_of_the_requests(self, name, build):
        requests = [request("b"), request("a", samples=1), request("c", length=9)]
        result = build(name).generate(requests, SamplingConfig(max_new_tokens=12), silent)
        check_result(requests, result)
        keys = [(each.group_id, each.sample_index) for each in result.completions]
        assert keys == [(each.group_id, index) for each in requests for index in range(len(each.seeds))]

    def test_progress_ends_with_all_completions(self, name, build):
        seen = []
        requests = [request("a"), request("b", samples=2)]
        sampling = SamplingConfig(max_new_tokens=12)
        build(name).generate(requests, sampling, lambda done, total: seen.append((done, total)))
        assert seen[-1] == (6, 6)
        assert seen == sorted(seen)

    def test_the_same_seeds_give_the_same_answer_and_other_seeds_another(self, name, build):
        engine = build(name)
        first = sampled(engine, [request("a", samples=8)], tokens=12)
        assert first == sampled(engine, [request("a", samples=8)], tokens=12)
        other = sampled(engine, [request("a", samples=8, seed=1)], tokens=12)
        assert [each.completion_token_ids for each in first.values()] != [
            each.completion_token_ids for each in other.values()
        ]

    def test_only_the_limit_says_length_and_no_completion_passes_it(self, name, build):
        requests = [request("a", samples=8), request("b", samples=8, limit=1)]
        for (group, _), each in sampled(build(name), requests, tokens=2).items():
            assert each.finish_reason == ("stop" if each.completion_token_ids[-1] == EOS else "length")
            assert 1 <= len(each.completion_token_ids) <= (2 if group == "a" else 1)

    def test_no_request_gives_no_answer(self, name, build):
        answer = build(name).generate([], SamplingConfig(max_new_tokens=2), silent)
        assert answer == GenerationResult([], [])


@pytest.mark.parametrize("name", sampling_engines())
class TestSamplingEngines:
    def test_samples_of_a_group_differ(self, name, build):
        found = sampled(build(name), [request("a", samples=16)], tokens=12)
        assert len({each.completion_token_ids for each in found.values()}) == 16

    def test_a_sample_does_not_depend_on_its_company_or_on_their_order(self, name, build):
        model = make_llama()
        alone = {}
        for one in PROMPTS:
            alone |= sampled(build(name, model), [one])
        for rows in (128, 7, 2, 1):
            for requests in (PROMPTS, PROMPTS[::-1]):
                crowd = sampled(build(name, model, rows), requests)
                assert {key: each.completion_token_ids for key, each in crowd.items()} == {
                    key: each.completion_token_ids for key, each in alone.items()
                }

    def test_a_sample_depends_on_its_own_seed_and_not_on_its_place_in_the_group(self, name, build):
        engine = build(name)
        both = request("a", samples=6)
        turned = type(both)(both.group_id, both.prompt_id, both.prompt_token_ids, both.answer, both.seeds[::-1])
        found, again = sampled(engine, [both]), sampled(engine, [turned])
        for index in range(6):
            assert found["a", index].completion_token_ids == again["a", 5 - index].completion_token_ids

    @pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
    def test_log_probabilities_are_of_the_tempered_distribution(self, name, build, temperature):
        model = make_llama()
        prompts = {each.group_id: each.prompt_token_ids for each in PROMPTS}
        for (group, _), each in sampled(build(name, model, 5), PROMPTS, tokens=10, temperature=temperature).items():
            expected = plain_logprobs(model, prompts[group], each, temperature)
            assert each.sampler_logprobs == pytest.approx(expected, abs=1e-4)

    def test_an_eos_id_in_a_prompt_is_a_token_and_no_padding(self, name, build):
        """pad = eos = 2, as in SmolLM2."""
        model = make_llama()
        requests = [request("short", ids=(1, 9, 2, 18)), request("long", length=12), request("ends", ids=(5, 2, 2))]
        prompts = {each.group_id: each.prompt_token_ids for each in requests}
        for (group, _), each in sampled(build(name, model), requests).items():
            assert each.sampler_logprobs == pytest.approx(plain_logprobs(model, prompts[group], each), abs=1e-4)

    def test_pairs_of_tokens_have_the_probabilities_of_the_model(self, name, build):
        model, number = make_llama(), 4000
        one = request("a", samples=number)
        found = Counter(each.completion_token_ids for each in sampled(build(name, model), [one], tokens=2).values())
        with torch.no_grad():
            vocabulary = torch.arange(32)[:, None]
            prompts = torch.tensor([one.prompt_token_ids]).repeat(32, 1)
            logits = model(input_ids=torch.cat([prompts, vocabulary], dim=1)).logits.double()
        first, second = logits[0, -2].softmax(-1), logits[:, -1].softmax(-1)
        cells = {(a, b): float(first[a] * second[a, b]) * number for a in range(32) for b in range(32) if a != EOS}
        cells[EOS,] = float(first[EOS]) * number
        likely = [(found[key], count) for key, count in cells.items() if count >= 5]
        rest = (number - sum(seen for seen, _ in likely), number - sum(count for _, count in likely))
        chi_square = sum((seen - count) ** 2 / count for seen, count in [*likely, rest])
        # The upper 1e-4 point of chi-square with k degrees of freedom is below k + 4 sqrt(2k) + 14.
        assert len(likely) > 50
        assert chi_square < len(likely) + 4 * math.sqrt(2 * len(likely)) + 14

    def test_greedy_takes_the_most_likely_token_each_time(self, name, build):
        model = make_llama()
        engine = build(name, model, 2)
        result = engine.generate([request("a", samples=1), request("b", length=7, samples=1)], Greedy(6), silent)
        prompts = {"a": request("a").prompt_token_ids, "b": request("b", length=7).prompt_token_ids}
        for each in result.completions:
            context = list(prompts[each.group_id])
            for token in each.completion_token_ids:
                with torch.no_grad():
                    assert token == int(model(input_ids=torch.tensor([context])).logits[0, -1].argmax())
                context.append(token)
            assert each.sampler_logprobs == pytest.approx(plain_logprobs(model, prompts[each.group_id], each), abs=1e-4)

    def test_every_eos_id_of_the_generation_config_ends_a_completion(self, name, build):
        model = make_llama()
        everything = list(range(8, 32))
        model.generation_config.eos_token_id = everything
        for each in sampled(build(name, model), [request("a", samples=16)], tokens=30).values():
            enders = [token in {*everything, EOS} for token in each.completion_token_ids]
            assert each.finish_reason == "stop"
            assert enders == [False] * (len(enders) - 1) + [True]

    def test_a_stop_string_ends_the_completion_and_stays_in_its_ids(self, name, build):
        engine = build(name)
        requests = [request("a", samples=32)]
        free = sampled(engine, requests, tokens=20)
        stopped = 0
        for key, each in sampled(engine, requests, tokens=20, stop=("3",)).items():
            whole = free[key].completion_token_ids
            texts = [TOKENIZER.decode(whole[: count + 1]) for count in range(len(whole))]
            end = next((count + 1 for count, text in enumerate(texts) if "3" in text), len(whole))
            assert each.completion_token_ids == whole[:end]
            assert (each.finish_reason == "stop") == (
                end < len(whole) or free[key].finish_reason == "stop" or "3" in texts[-1]
            )
            stopped += "3" in TOKENIZER.decode(each.completion_token_ids)
        assert stopped > 3

    def test_a_stop_string_may_spread_over_tokens_but_not_reach_into_the_prompt(self, name, build):
        engine = build(name)
        requests = [request("a", samples=64, ids=TOKENIZER("1+1=", add_special_tokens=False)["input_ids"])]
        free = {
            key: TOKENIZER.decode(each.completion_token_ids)
            for key, each in sampled(engine, requests, tokens=20).items()
        }
        pairs = Counter(
            text[place : place + 2] for text in free.values() for place in range(len(text) - 1) if "<" not in text
        )
        pair = pairs.most_common(1)[0][0]
        for key, each in sampled(engine, requests, tokens=20, stop=(pair, "=")).items():
            text = TOKENIZER.decode(each.completion_token_ids)
            assert free[key].startswith(text)
            if pair in text:
                assert text.endswith(pair)
                assert text.count(pair) == 1
            assert each.completion_token_ids

    def test_a_stop_string_of_characters_whose_bytes_are_split_over_tokens_ends_the_completion(self, name, build):
        tokenizer = byte_tokenizer()
        engine = build(name, make_llama(vocab_size=8, initializer_range=0.05), tokenizer=tokenizer)
        requests = [request("é", samples=64, ids=(3, 4, 5))]
        free, stopped = (
            sampled(engine, requests, tokens=20),
            sampled(engine, requests, tokens=20, stop=("é", "aè")),
        )
        for key, each in stopped.items():
            whole = free[key].completion_token_ids
            texts = [tokenizer.decode(whole[: count + 1]) for count in range(len(whole))]
            end = next((count + 1 for count, text in enumerate(texts) if "é" in text or "aè" in text), len(whole))
            assert each.completion_token_ids == whole[:end]
        assert sum(each != free[key] for key, each in stopped.items()) > 3

    def test_a_prompt_that_is_too_long_shifts_nobody(self, name, build):
        model = make_llama(max_position_embeddings=10)
        lengths = {"0": 4, "1": 12, "2": 6}
        requests = [request(group, length=length, samples=2) for group, length in lengths.items()]
        result = build(name, model).generate(requests, SamplingConfig(max_new_tokens=50), silent)
        assert [each.group_id for each in result.completions] == ["0", "0", "2", "2"]
        assert [(each.group_id, each.prompt_id, each.reason) for each in result.skipped] == [
            ("1", "p-1", "prompt_too_long")
        ]
        for each in result.completions:
            assert len(each.completion_token_ids) <= 10 - lengths[each.group_id]
            if len(each.completion_token_ids) < 10 - lengths[each.group_id]:
                assert each.finish_reason == "stop"
        alone = build(name, model).generate(requests[1:2], SamplingConfig(max_new_tokens=5), silent)
        assert (alone.completions, len(alone.skipped)) == ([], 1)

    def test_a_prompt_without_tokens_is_refused_by_name(self, name, build):
        with pytest.raises(ValueError, match="group nothing has no tokens"):
            build(name).generate([request("a"), request("nothing", length=0)], SamplingConfig(max_new_tokens=2), silent)

    def test_new_weights_are_sampled_from_by_a_new_engine(self, name, build):
        model = make_llama()
        sampled(build(name, model), PROMPTS)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.7).add_(0.01)
        prompts = {each.group_id: each.prompt_token_ids for each in PROMPTS}
        for (group, _), each in sampled(build(name, model), PROMPTS).items():
            assert each.sampler_logprobs == pytest.approx(plain_logprobs(model, prompts[group], each), abs=1e-4)
