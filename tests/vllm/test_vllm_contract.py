"""What vLLM itself answers: against plain forward passes and the engine of this process."""

import os
import signal

import pytest

from tasks.rollout.config import SamplingConfig, TransformersEngineConfig
from tasks.rollout.engine import EngineError, Greedy, check_result
from tasks.rollout.engines import make_engine
from tasks.rollout.vllm_engine import VllmEngine
from tasks.rollout.vllm_parity import forward_logprobs
from tasks.rollout.vllm_replica import RELOAD, RELOAD_AND_REPACK
from tests.vllm.conftest import CONFIG, below, name_of, request, silent, weights_of

pytestmark = pytest.mark.vllm

REQUESTS = [request("a", (1, 10, 11, 12)), request("b", tuple(range(1, 30))), request("c", (1,), samples=2)]


def off_by(model, requests, result, temperature=1.0):
    """The largest distance in nats of a sampler's log-probability from that of a plain forward pass."""
    scaled = ScaledLogits(model, temperature)
    prompts = {each.group_id: each.prompt_token_ids for each in requests}
    return max(
        abs(theirs - ours)
        for each in result.completions
        for theirs, ours in zip(
            each.sampler_logprobs,
            forward_logprobs(scaled, prompts[each.group_id], each.completion_token_ids),
            strict=True,
        )
    )


class ScaledLogits:
    """A model whose logits are divided by a temperature."""

    def __init__(self, model, temperature):
        self.model, self.temperature, self.device = model, temperature, model.device

    def __call__(self, **inputs):
        output = self.model(**inputs)
        output.logits = output.logits / self.temperature
        return output


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_are_those_of_a_plain_forward_at_the_temperature(engine, temperature):
    result = engine.generate(REQUESTS, SamplingConfig(temperature=temperature, max_new_tokens=20), silent)
    check_result(REQUESTS, result)
    assert off_by(engine._weights.model, REQUESTS, result, temperature) < 1e-4


def test_the_same_seeds_give_the_same_tokens_and_other_seeds_others(engine):
    sampling = SamplingConfig(max_new_tokens=20)
    first, again = (engine.generate(REQUESTS, sampling, silent) for _ in range(2))
    ids = [each.completion_token_ids for each in first.completions]
    assert ids == [each.completion_token_ids for each in again.completions]
    assert len(set(ids)) == len(ids)


def test_greedy_tokens_are_those_of_the_engine_of_this_process(engine):
    one = [request("g", (1, 10, 11, 12), samples=1)]
    ours = make_engine(TransformersEngineConfig(), engine._weights).generate(one, Greedy(24), silent)
    theirs = engine.generate(one, Greedy(24), silent)
    assert theirs.completions[0].completion_token_ids == ours.completions[0].completion_token_ids
    assert theirs.completions[0].finish_reason == ours.completions[0].finish_reason


def test_a_completion_ends_at_an_end_of_sequence_id_a_stop_string_or_the_limit(engine):
    requests = [request("s", (1, 10, 11), samples=32)]
    tokenizer, eos = engine._weights.tokenizer, engine._weights.tokenizer.eos_token_id
    reasons = set()
    for each in engine.generate(requests, SamplingConfig(max_new_tokens=40, stop=("3",)), silent).completions:
        ids = each.completion_token_ids
        text = tokenizer.decode(ids)
        ends = "eos" if ids[-1] == eos else "string" if "3" in text else "limit"
        assert each.finish_reason == ("length" if ends == "limit" else "stop")
        assert eos not in ids[:-1]
        assert len(ids) == 40 or ends != "limit"
        if ends == "string":
            assert text.index("3") == len(text) - 1
        reasons.add(ends)
    assert reasons >= {"eos", "string"}


def test_every_eos_id_of_the_generation_config_ends_a_completion(engine):
    engine._weights.model.generation_config.eos_token_id = list(range(10, 32))
    more = VllmEngine(engine._weights, CONFIG, engine._servers)
    for each in more.generate([request("e", (1, 5), samples=8)], SamplingConfig(max_new_tokens=40), silent).completions:
        enders = [token >= 10 or token == 2 for token in each.completion_token_ids]
        assert each.finish_reason == "stop"
        assert enders == [False] * (len(enders) - 1) + [True]


def test_a_prompt_that_is_too_long_is_skipped_and_the_last_token_of_the_context_is_used(engine):
    requests = [request("fits", (1, *[5] * 125)), request("too long", (1, *[5] * 127))]
    result = engine.generate(requests, SamplingConfig(max_new_tokens=40), silent)
    assert [each.group_id for each in result.skipped] == ["too long"]
    assert {each.group_id for each in result.completions} == {"fits"}
    assert max(len(each.completion_token_ids) for each in result.completions) == 2


class TestWeightUpdate:
    def test_new_weights_in_place_are_the_new_weights(self, engine, servers, tiny, tmp_path):
        engine.generate(REQUESTS, SamplingConfig(max_new_tokens=20), silent)
        other = VllmEngine(weights_of(tiny[1], tmp_path), CONFIG, servers)
        result = other.generate(REQUESTS, SamplingConfig(max_new_tokens=20), silent)
        assert off_by(other._weights.model, REQUESTS, result) < 1e-4
        assert result.metrics["num_engine_starts"] == result.metrics["num_rejected_reloads"] == 0
        assert result.metrics["parity_max_difference"] < 1e-4

    def test_what_vllm_reloads_by_itself_on_a_cpu_is_wrong_and_the_probe_says_so(self, servers, tiny, tmp_path):
        """The output layer is tied to the embedding, and its packed copy stays that of the old weights."""
        VllmEngine(weights_of(tiny[0], tmp_path), CONFIG, servers).generate(
            REQUESTS, SamplingConfig(max_new_tokens=4), silent
        )
        station, weights = servers._stations[0], weights_of(tiny[1], tmp_path)
        station._weights = weights
        station.replica.load_weights(weights.folder, weights.digest, RELOAD)
        with pytest.raises(EngineError, match="the server does not sample from the weights"):
            station._prove()
        station.replica.load_weights(weights.folder, weights.digest, RELOAD_AND_REPACK)
        station._prove()

    def test_a_server_whose_core_is_killed_while_it_generates_loses_nothing(self, engine, servers):
        requests = [request(f"k{index}", (1, 5 + index), samples=32) for index in range(4)]
        sampling = SamplingConfig(max_new_tokens=100)
        expected = engine.generate(requests, sampling, silent)
        killed = []

        def kill_once(done, total):
            if not killed and done < total:
                killed.extend(pid for pid in below(os.getpid()) if "EngineCore" in name_of(pid))
                os.kill(killed[0], signal.SIGKILL)

        result = engine.generate(requests, sampling, kill_once)
        check_result(requests, result)
        assert killed
        assert result.metrics["num_engine_restarts"] == 1
        assert result.metrics["num_retried_requests"] >= 1
        assert result.metrics["parity_max_difference"] < 1e-4
        same = [
            a.completion_token_ids == b.completion_token_ids
            for a, b in zip(expected.completions, result.completions, strict=True)
        ]
        assert all(same)
