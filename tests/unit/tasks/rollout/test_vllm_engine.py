"""The vLLM engine against servers that misbehave."""

import math
import threading

import pytest
import torch

from tasks.policy.characters import build_tokenizer
from tasks.policy.loading import load_model, save_model
from tasks.rollout import vllm_replica
from tasks.rollout.config import SamplingConfig, TransformersEngineConfig, VllmEngineConfig
from tasks.rollout.engine import EngineError, Greedy, GroupRequest, PolicyWeights, Skipped, check_result
from tasks.rollout.engines import make_engine
from tasks.rollout.vllm_dispatch import MAX_ATTEMPTS
from tasks.runtime import residents
from tasks.values.seeds import derive_seed
from tests.conftest import make_llama
from tests.unit.tasks.rollout.vllm_stand_in import EOS, StandIn

TOKENIZER = build_tokenizer()
SAMPLING = SamplingConfig(max_new_tokens=10)
LOADING = threading.Lock()
"""transformers loads one model at a time in a process; real servers are processes of their own."""


class Served:
    """A policy behind the stand-in: sampled by the engine of this process, so that its log-probabilities are right."""

    def __init__(self, folder):
        with LOADING:
            model = load_model(folder, device="cpu")
        self.engine = make_engine(TransformersEngineConfig(), PolicyWeights(model, TOKENIZER))
        self.lock = threading.Lock()

    def __call__(self, body):
        request = GroupRequest("g", "p", tuple(body["prompt"]), "", (body["seed"],))
        limit = body["max_tokens"]
        greedy, sampling = Greedy(limit), SamplingConfig(temperature=body["temperature"] or 1.0, max_new_tokens=limit)
        with self.lock:
            result = self.engine.generate([request], sampling if body["temperature"] else greedy, silent)
        (found,) = result.completions
        return found.completion_token_ids, found.sampler_logprobs, found.finish_reason


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    residents.clear()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    for seed, folder in enumerate(found):
        save_model(make_llama(seed=seed), TOKENIZER, folder)
    return found


@pytest.fixture
def start(folders):
    """Start a stand-in over the first folder's weights."""
    started = []

    def start_one(**faults):
        stand_in = StandIn(folders[0], Served)
        for name, value in faults.items():
            setattr(stand_in, name, value)
        started.append(stand_in)
        return stand_in

    yield start_one
    for stand_in in started:
        stand_in.close()


def silent(done, total):
    return None


def request(name, length=3, samples=4):
    seeds = tuple(derive_seed(name, index) for index in range(samples))
    return GroupRequest(
        name, f"p-{name}", tuple(3 + (index + ord(name[0])) % 20 for index in range(length)), "7", seeds
    )


def engine_over(folder, *stand_ins, max_model_len=None, eos=EOS, **server):
    server = {"urls": [each.url for each in stand_ins], "request_timeout_seconds": 20.0, **server}
    config = VllmEngineConfig.model_validate({"kind": "vllm", "max_model_len": max_model_len, "server": server})
    model = load_model(folder, device="cpu")
    model.generation_config.eos_token_id = eos
    weights = PolicyWeights(model, TOKENIZER, str(folder), folder, folder.parent / "logs")
    return make_engine(config, weights)


def asked(stand_in):
    """The completions that were asked for, without those of the parity probe."""
    return [body for body in stand_in.bodies if body["stop_token_ids"]]


def expected_logprobs(folder, prompt, completion, temperature=1.0):
    model = load_model(folder, device="cpu")
    ids = torch.tensor([[*prompt, *completion]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(completion)[:, None]).flatten().tolist()


class TestAnswers:
    def test_every_sample_is_answered_in_order_with_its_own_seed_and_log_probabilities(self, folders, start):
        stand_in = start()
        requests = [request("b"), request("a", samples=2), request("c", length=9)]
        seen = []
        result = engine_over(folders[0], stand_in).generate(requests, SAMPLING, lambda *counts: seen.append(counts))
        check_result(requests, result)
        keys = [(each.group_id, each.sample_index) for each in result.completions]
        assert keys == [(each.group_id, index) for each in requests for index in range(len(each.seeds))]
        assert sorted(body["seed"] for body in asked(stand_in)) == sorted(s for each in requests for s in each.seeds)
        prompts = {each.group_id: each.prompt_token_ids for each in requests}
        for each in result.completions:
            found = expected_logprobs(folders[0], prompts[each.group_id], each.completion_token_ids)
            assert each.sampler_logprobs == pytest.approx(found, abs=1e-4)
        assert seen[-1] == (10, 10)

    def test_the_same_seeds_give_the_same_answer_over_one_server_and_over_two(self, folders, start):
        requests = [request("a"), request("b")]
        alone = engine_over(folders[0], start()).generate(requests, SAMPLING, silent)
        together = engine_over(folders[0], start(), start()).generate(requests, SAMPLING, silent)
        assert alone == together

    def test_greedy_takes_the_most_likely_token_each_time(self, folders, start):
        one = request("a", samples=1)
        (found,) = engine_over(folders[0], start()).generate([one], Greedy(max_new_tokens=6), silent).completions
        model, context = load_model(folders[0], device="cpu"), list(one.prompt_token_ids)
        for token in found.completion_token_ids:
            with torch.no_grad():
                assert token == int(model(input_ids=torch.tensor([context])).logits[0, -1].argmax())
            context.append(token)

    def test_all_end_of_sequence_ids_are_sent_as_stop_ids(self, folders, start):
        stand_in = start()
        engine_over(folders[0], stand_in, eos=[9, 4]).generate([request("a")], SAMPLING, silent)
        assert {tuple(body["stop_token_ids"]) for body in asked(stand_in)} == {(EOS, 4, 9)}

    def test_prompts_that_are_too_long_are_skipped_unasked_and_shift_nobody(self, folders, start):
        stand_in = start()
        requests = [request("0", length=4, samples=2), request("1", length=12, samples=2), request("2", 6, samples=2)]
        result = engine_over(folders[0], stand_in, max_model_len=10).generate(requests, SAMPLING, silent)
        assert [each.group_id for each in result.completions] == ["0", "0", "2", "2"]
        assert result.skipped == [Skipped("1", "p-1", "prompt_too_long")]
        assert max(len(body["prompt"]) for body in stand_in.bodies) == 6
        assert {(len(body["prompt"]), body["max_tokens"]) for body in asked(stand_in)} == {(4, 6), (6, 4)}

    def test_the_servers_own_context_counts_when_it_is_the_smaller_one(self, folders, start):
        result = engine_over(folders[0], start(context=10)).generate(
            [request("0", length=4), request("1", length=10)], SAMPLING, silent
        )
        assert {each.group_id for each in result.completions} == {"0"}
        assert [each.group_id for each in result.skipped] == ["1"]

    def test_when_all_prompts_are_too_long_no_server_is_asked(self, folders, start):
        stand_in = start()
        result = engine_over(folders[0], stand_in, max_model_len=3).generate([request("a")], SAMPLING, silent)
        assert (result.completions, len(result.skipped), stand_in.calls) == ([], 1, [])

    def test_values_that_the_server_does_not_know_are_nan_and_counted(self, folders, start):
        def forget(number, answer):
            logprobs = answer["choices"][0]["logprobs"]
            logprobs["top_logprobs"] = None
            logprobs["token_logprobs"][0] = [None, math.nan, -9999.0][number % 3]

        result = engine_over(folders[0], start(mangle=forget)).generate([request("a")], SAMPLING, silent)
        assert [math.isnan(each.sampler_logprobs[0]) for each in result.completions] == [True] * 4
        assert result.metrics["num_unknown_logprobs"] == 4


class TestLoad:
    def test_the_load_is_spread_and_no_server_has_more_requests_than_it_may(self, folders, start):
        servers = [start(seconds_per_answer=0.02), start(seconds_per_answer=0.02)]
        engine = engine_over(folders[0], *servers, max_concurrent_requests=3)
        engine.generate([request("a", samples=24)], SAMPLING, silent)
        assert [each.most_at_once for each in servers] == [3, 3]
        assert min(len(asked(each)) for each in servers) >= 4
        assert sum(len(asked(each)) for each in servers) == 24

    def test_a_server_that_dies_in_the_middle_of_an_answer_loses_nothing(self, folders, start):
        dying, living = start(dies_after=6, seconds_per_answer=0.01), start(seconds_per_answer=0.01)
        requests = [request(name, samples=8) for name in "abcd"]
        result = engine_over(folders[0], dying, living).generate(requests, SAMPLING, silent)
        check_result(requests, result)
        assert result.completions == engine_over(folders[0], start()).generate(requests, SAMPLING, silent).completions
        assert result.metrics["num_lost_servers"] == 1
        assert result.metrics["num_retried_requests"] >= 1

    def test_when_the_last_server_is_gone_the_stage_fails_and_names_it(self, folders, start):
        dying = start(dies_after=6)
        with pytest.raises(EngineError, match=f"no vLLM server is left to answer; the last failure: {dying.url}"):
            engine_over(folders[0], dying).generate([request("a", samples=8)], SAMPLING, silent)

    def test_when_no_server_answers_from_the_start_the_stage_fails(self, folders, start):
        gone = start()
        gone.close()
        with pytest.raises(EngineError, match="no vLLM server answers"):
            engine_over(folders[0], gone).generate([request("a")], SAMPLING, silent)

    def test_a_server_that_hangs_is_passed_over(self, folders, start):
        forever = threading.Event()
        hanging, living = start(), start()
        engine = engine_over(folders[0], hanging, living, max_concurrent_requests=2)
        engine.generate([request("a")], SAMPLING, silent)
        hanging.hangs = forever
        engine._servers._stations[0]._replica._timeout = 1.0
        requests = [request("b", samples=6)]
        check_result(requests, result := engine.generate(requests, SAMPLING, silent))
        assert result.metrics["num_retried_requests"] >= 1
        forever.set()

    def test_a_request_under_way_fails_at_once_when_the_connections_are_dropped(self, start):
        stand_in = start(hangs=threading.Event())
        replica = vllm_replica.Replica(stand_in.url, timeout_seconds=60.0, max_connections=2)
        failures = []

        def ask():
            try:
                replica.complete({})
            except vllm_replica.ReplicaFailed as failure:
                failures.append(failure)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        while not stand_in.bodies:
            pass
        replica.close()
        asking.join(15)
        assert failures
        stand_in.hangs.set()

    def test_a_sample_that_fails_everywhere_ends_the_stage_after_a_few_attempts(self, folders, start):
        stand_in = start()
        engine = engine_over(folders[0], stand_in)
        engine.generate([request("a")], SAMPLING, silent)
        stand_in.status = 500
        before = len(stand_in.bodies)
        with pytest.raises(EngineError, match=rf"sample 0 of group b was not answered in {MAX_ATTEMPTS} attempts.*500"):
            engine.generate([request("b", samples=1)], SAMPLING, silent)
        assert len(stand_in.bodies) - before == MAX_ATTEMPTS

    def test_a_request_that_the_server_refuses_is_quoted_and_not_tried_again(self, folders, start):
        stand_in = start()
        engine = engine_over(folders[0], stand_in)
        engine.generate([request("a")], SAMPLING, silent)
        stand_in.status = 400
        before = len(stand_in.bodies)
        with pytest.raises(EngineError, match=r"answered 400.*status 400 was asked for"):
            engine.generate([request("b", samples=1)], SAMPLING, silent)
        assert len(stand_in.bodies) - before == 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda answer: answer["choices"][0]["logprobs"]["token_logprobs"].pop(), "log-probs"),
            (lambda answer: answer["choices"].append(answer["choices"][0]), "2 completions"),
            (lambda answer: answer["choices"].clear(), "0 completions"),
        ],
    )
    def test_an_answer_with_a_wrong_count_fails_the_stage_and_names_the_sample(self, folders, start, change, message):
        stand_in = start()
        engine = engine_over(folders[0], stand_in)
        engine.generate([request("a")], SAMPLING, silent)
        stand_in.mangle = lambda number, answer: change(answer)
        with pytest.raises(EngineError, match=f"sample 0 of group b.*{message}"):
            engine.generate([request("b", samples=1)], SAMPLING, silent)

    def test_an_aborted_sample_is_asked_for_again_and_at_last_is_a_row_that_says_so(self, folders, start):
        def abort_twice(number, answer):
            if number in (5, 6):
                answer["choices"][0]["finish_reason"] = "abort"

        stand_in = start(mangle=abort_twice)
        result = engine_over(folders[0], stand_in).generate([request("a", samples=2)], SAMPLING, silent)
        assert "abort" not in {each.finish_reason for each in result.completions}
        assert result.metrics["num_retried_requests"] == 2
        stand_in.mangle = lambda number, answer: answer["choices"][0].update(finish_reason="abort")
        result = engine_over(folders[0], stand_in).generate([request("b", samples=2)], SAMPLING, silent)
        assert [each.finish_reason for each in result.completions] == ["abort", "abort"]
        assert result.metrics["num_retried_requests"] == 2 * (MAX_ATTEMPTS - 1)


class TestWeights:
    def test_after_new_weights_nothing_old_is_served(self, folders, start):
        """Load, then forget the prefixes, then ask: a prompt that was asked before is answered by the new weights."""
        stand_in = start()
        one = request("a", length=9)
        engine_over(folders[0], stand_in).generate([one], SAMPLING, silent)
        del stand_in.calls[:]
        result = engine_over(folders[1], stand_in).generate([one], SAMPLING, silent)
        assert stand_in.version == str(folders[1])
        for each in result.completions:
            found = expected_logprobs(folders[1], one.prompt_token_ids, each.completion_token_ids)
            assert each.sampler_logprobs == pytest.approx(found, abs=1e-4)
        order = [call for call in stand_in.calls if call not in ("/v1/models", "/weight_info")]
        updates = ["/collective_rpc#reload_weights", "/reset_prefix_cache", "/update_weight_version"]
        assert order[:4] == [*updates, "/v1/completions"]
        assert result.metrics["parity_max_difference"] < 1e-4
        assert result.metrics["num_parity_tokens"] > 8

    @pytest.mark.parametrize("fault", ["takes_weights", "forgets_prefixes"])
    def test_old_weights_and_old_prefixes_are_noticed(self, folders, start, fault):
        stand_in = start(**{fault: False})
        one = request("a", length=9)
        stand_in.version = str(folders[0])
        engine_over(folders[0], stand_in).generate([one], SAMPLING, silent)
        with pytest.raises(EngineError, match=r"differ by up to .* nats.*more than parity_tolerance 0.02"):
            engine_over(folders[1], stand_in).generate([request("b")], SAMPLING, silent)

    def test_a_cache_that_is_not_given_up_fails_the_update(self, folders, start, monkeypatch):
        monkeypatch.setattr(vllm_replica, "SECONDS_BETWEEN_RESETS", 0.0)
        stand_in = start(says_reset=False)
        with pytest.raises(EngineError, match="does not give up its cached prefixes"):
            engine_over(folders[0], stand_in).generate([request("a")], SAMPLING, silent)
        assert stand_in.calls.count("/reset_prefix_cache") == vllm_replica.NUM_RESET_TRIES

    def test_weights_are_loaded_and_proven_once_not_in_every_stage(self, folders, start):
        stand_in = start()
        first = engine_over(folders[0], stand_in).generate([request("a")], SAMPLING, silent)
        again = engine_over(folders[0], stand_in).generate([request("b")], SAMPLING, silent)
        assert stand_in.calls.count("/collective_rpc#reload_weights") == 1
        assert len(stand_in.bodies) == 4 + 4 + 4
        assert "parity_max_difference" in first.metrics
        assert "parity_max_difference" not in again.metrics
        assert set(again.metrics.values()) == {0.0}

    def test_a_server_that_somebody_restarted_gets_the_weights_again(self, folders, start):
        stand_in = start()
        engine_over(folders[1], stand_in).generate([request("a")], SAMPLING, silent)
        stand_in.version, stand_in.policy = "default", Served(folders[0])
        stand_in.prefixes.clear()
        engine_over(folders[1], stand_in).generate([request("b")], SAMPLING, silent)
        assert stand_in.calls.count("/collective_rpc#reload_weights") == 2

    def test_a_server_that_somebody_restarted_within_a_stage_is_left_out_of_it(self, folders, start):
        """It says that it is healthy, and has the weights that it was started with."""
        restarted, living = start(seconds_per_answer=0.01), start(seconds_per_answer=0.01)

        def restart(number, answer):
            if number == 8:
                restarted.version, restarted.policy = "default", Served(folders[0])
                restarted.prefixes.clear()
                raise ConnectionError

        restarted.mangle = restart
        one = request("a", samples=24)
        engine = engine_over(folders[1], restarted, living, max_concurrent_requests=1)
        result = engine.generate([one], SAMPLING, silent)
        assert result.metrics["num_lost_servers"] == 1
        assert len(asked(restarted)) == 4
        for each in result.completions:
            found = expected_logprobs(folders[1], one.prompt_token_ids, each.completion_token_ids)
            assert each.sampler_logprobs == pytest.approx(found, abs=1e-4)
        restarted.mangle = None
        result = engine.generate([one], SAMPLING, silent)
        assert result.metrics["num_lost_servers"] == 0
        assert len(asked(restarted)) > 4
        assert restarted.version == str(folders[1])

    def test_the_probe_keeps_to_the_context(self, folders, start):
        stand_in = start(context=12)
        result = engine_over(folders[0], stand_in).generate(
            [request("a", length=9), request("b", length=12)], SAMPLING, silent
        )
        assert [each.group_id for each in result.skipped] == ["b"]
        assert max(len(body["prompt"]) + body["max_tokens"] for body in stand_in.bodies) == 12

    def test_a_server_without_the_endpoints_for_weights_says_how_to_start_it(self, folders, start):
        stand_in = start()
        stand_in.do_weight_info = lambda body: (404, {"detail": "Not Found"})
        with pytest.raises(EngineError, match=r"404.*VLLM_SERVER_DEV_MODE=1"):
            engine_over(folders[0], stand_in).generate([request("a")], SAMPLING, silent)

    def test_the_probe_puts_the_models_mode_back(self, folders, start):
        engine = engine_over(folders[0], start())
        engine._weights.model.train()
        engine.generate([request("a")], SAMPLING, silent)
        assert engine._weights.model.training

    def test_between_stages_a_server_sleeps_when_it_is_told_to(self, folders, start):
        stand_in = start()
        engine = engine_over(folders[0], stand_in, sleeps=True)
        engine.generate([request("a")], SAMPLING, silent)
        assert stand_in.is_asleep
        assert "/wake_up" not in stand_in.calls
        result = engine.generate([request("b")], SAMPLING, silent)
        assert stand_in.is_asleep
        assert stand_in.calls.index("/wake_up") < len(stand_in.calls) - 1 - stand_in.calls[::-1].index(
            "/v1/completions"
        )
        assert result.metrics["num_retried_requests"] == 0

    def test_a_server_that_an_earlier_run_left_asleep_is_woken(self, folders, start):
        stand_in = start(is_asleep=True)
        engine_over(folders[0], stand_in, sleeps=True).generate([request("a")], SAMPLING, silent)
        assert stand_in.calls.count("/wake_up") == 1


def test_an_error_while_generating_closes_the_servers_and_the_next_call_begins_anew(folders, start):
    stand_in = start()
    engine = engine_over(folders[0], stand_in)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate([request("a")], SAMPLING, interrupt)
    assert engine._servers._stations[0]._replica is None
    assert len(engine.generate([request("a")], SAMPLING, silent).completions) == 4
