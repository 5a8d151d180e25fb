"""What is asked of vLLM, and what its answers mean."""

import math

import pytest

from tasks.policy.characters import build_tokenizer
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engine import EngineError, GenerationResult, Greedy, GroupRequest
from tasks.rollout.rollouts import completion_rows, requests_for
from tasks.rollout.vllm_answers import Sample, body_of, completion_of, positions_of, sampled_logprobs

TOKENIZER = build_tokenizer()
EOS = TOKENIZER.eos_token_id
REQUEST = GroupRequest("g", "p", (1, 5, 6), "7", (11, 12))
SAMPLE = Sample(REQUEST, 1, 8)


def answer(ids=(5, 9), values=(-0.4, -2.5), reason="stop", **changes):
    tokens = [f"token_id:{token}" for token in ids]
    logprobs = {"tokens": tokens, "token_logprobs": list(values), "top_logprobs": None}
    return {"choices": [{"token_ids": list(ids), "finish_reason": reason, "logprobs": logprobs, **changes}]}


def test_the_value_of_a_position_is_that_of_the_sampled_token_not_the_first_nor_the_best():
    assert sampled_logprobs([5, 9], [{5: -0.4}, {7: -0.1, 9: -2.5}]) == (-0.4, -2.5)


def test_a_position_without_the_sampled_token_is_an_error():
    with pytest.raises(ValueError, match=r"position 1 has log-probs of \[7\], not of the sampled token 9"):
        sampled_logprobs([5, 9], [{5: -0.4}, {7: -0.1}])


@pytest.mark.parametrize("unknown", [None, math.nan, -math.inf, -9999.0, -10_000.0])
def test_a_value_that_the_server_does_not_know_is_nan(unknown):
    found = sampled_logprobs([5, 9], [{5: unknown}, {9: -9998.0}])
    assert math.isnan(found[0])
    assert found[1] == -9998.0


def test_the_four_lists_of_an_answer_become_a_dictionary_per_position():
    lists = {
        "tokens": ["token_id:5", "token_id:9"],
        "token_logprobs": [-0.4, -2.5],
        "top_logprobs": [{"token_id:5": -0.4}, {"token_id:7": -0.1, "token_id:9": -2.5}],
    }
    assert positions_of(lists) == [{5: -0.4}, {7: -0.1, 9: -2.5}]
    assert positions_of({**lists, "top_logprobs": None}) == [{5: -0.4}, {9: -2.5}]
    with pytest.raises(ValueError, match="is not given by its id"):
        positions_of({**lists, "tokens": ["a", "b"]})


def test_an_answer_gives_the_ids_and_values_of_its_sample():
    completion = completion_of(SAMPLE, answer())
    assert (completion.group_id, completion.sample_index) == ("g", 1)
    assert completion.completion_token_ids == (5, 9)
    assert completion.sampler_logprobs == (-0.4, -2.5)


@pytest.mark.parametrize(
    ("reason", "stop_reason", "ids", "finish", "truncated"),
    [
        ("stop", None, (5, EOS), "stop", False),
        ("stop", "</answer>", (5, 6), "stop", False),
        ("stop", 30, (5, 30), "stop", False),
        ("length", None, (5, 6), "length", True),
        ("abort", None, (5, 6), "abort", False),
        ("length", None, (5, EOS), "length", False),
    ],
)
def test_why_generation_stopped(reason, stop_reason, ids, finish, truncated):
    completion = completion_of(Sample(REQUEST, 0, 8), answer(ids=ids, reason=reason, stop_reason=stop_reason))
    other = completion_of(SAMPLE, answer())
    rows, metrics = completion_rows(
        [REQUEST],
        GenerationResult([completion, other], []),
        tokenizer=TOKENIZER,
        eos_ids=frozenset({EOS, 30}),
        temperature=1.0,
        policy_digest="d",
    )
    assert rows[0]["finish_reason"] == finish
    assert rows[0]["is_truncated"] is truncated
    assert rows[0]["completion_token_ids"] == list(ids)
    assert metrics["num_aborted"] == (finish == "abort")


def test_the_text_comes_from_the_ids_which_hold_the_stop_string_that_the_servers_text_dropped():
    closing = TOKENIZER.convert_tokens_to_ids("</answer>")
    digit = TOKENIZER.convert_tokens_to_ids("7")
    found = answer(ids=(digit, closing), stop_reason="</answer>", text="7")
    rows, _ = completion_rows(
        [GroupRequest("g", "p", (1,), "7", (1,))],
        GenerationResult([completion_of(Sample(REQUEST, 0, 8), found)], []),
        tokenizer=TOKENIZER,
        eos_ids=frozenset({EOS}),
        temperature=1.0,
        policy_digest="d",
    )
    assert rows[0]["text"] == "7</answer>"


def test_an_aborted_completion_may_lack_log_probabilities():
    completion = completion_of(SAMPLE, answer(ids=(5,), values=(), reason="abort"))
    assert completion.sampler_logprobs is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"choices": []}, "0 completions"),
        ({"choices": answer()["choices"] * 2}, "2 completions"),
        ({}, "no completions"),
        (answer(values=(-0.4,)), "2 tokens, 1 log-probs"),
        (answer(logprobs=None), "0 log-probs for 2 tokens"),
        (answer(logprobs={"tokens": ["token_id:5"], "token_logprobs": [-0.4]}), "1 log-probs for 2 tokens"),
        (answer(token_ids=None), "no token ids"),
        (answer(token_ids=["5", "9"]), "no token ids"),
        (answer(token_ids=[9, 5]), "not of the sampled token 9"),
        (answer(ids=range(9), values=[-1.0] * 9), "9 tokens, the limit was 8"),
        (answer(reason="repetition"), "finished by 'repetition'"),
        (answer(reason=None), "finished by None"),
    ],
)
def test_an_answer_that_does_not_fit_names_its_sample(wrong, message):
    with pytest.raises(EngineError, match=f"sample 1 of group g.*{message}"):
        completion_of(SAMPLE, wrong)


def test_a_request_asks_for_the_whole_distribution_and_for_ids():
    body = body_of(SAMPLE, SamplingConfig(temperature=0.7, max_new_tokens=8, stop=("</a>",)), frozenset({30, 2}), "m")
    assert body["prompt"] == [1, 5, 6]
    assert (body["n"], body["seed"], body["max_tokens"], body["temperature"]) == (1, 12, 8, 0.7)
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)
    assert (body["stop"], body["stop_token_ids"]) == (["</a>"], [2, 30])
    assert body["logprobs"] == 0
    assert body["return_token_ids"] is body["return_tokens_as_token_ids"] is True


def test_a_greedy_request_has_temperature_zero():
    assert body_of(SAMPLE, Greedy(max_new_tokens=8), frozenset({2}), "m")["temperature"] == 0.0


def test_no_two_requests_of_a_run_have_one_seed_and_each_asks_for_one_sample():
    """A request with n samples and seed s would use s..s+n-1; 4 prompts x 4 samples x 3 iterations are 48 seeds."""
    selection = [
        {"group_id": f"g{index}", "prompt_id": f"p{index}", "prompt_token_ids": [1], "answer": "1"}
        for index in range(4)
    ]
    bodies = [
        body_of(Sample(request, index, 8), SamplingConfig(max_new_tokens=8), frozenset({2}), "m")
        for iteration in range(3)
        for request in requests_for(selection, num_samples=4, seed_parts=(7, iteration))
        for index in range(4)
    ]
    used = [body["seed"] + offset for body in bodies for offset in range(body["n"])]
    assert len(used) == len(set(used)) == 48
