"""Held-out numbers: pass@k, intervals, the gate."""

import math

import pytest

from tasks.evaluation.bootstrap import paired_bootstrap
from tasks.evaluation.config import PromotionConfig
from tasks.evaluation.gate import decide
from tasks.evaluation.pass_at_k import pass_at_k
from tasks.evaluation.tabulate import evaluation_rows


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(4, 1, 1, 0.25), (4, 1, 4, 1.0), (4, 2, 2, 1 - 1 / 6), (5, 0, 3, 0.0), (5, 5, 1, 1.0), (10, 3, 5, 1 - 21 / 252)],
)
def test_pass_at_k_is_the_unbiased_estimate(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_of_more_than_the_samples_is_refused():
    with pytest.raises(ValueError, match="k 5"):
        pass_at_k(4, 1, 5)


def test_the_interval_holds_the_mean_and_has_the_width_of_the_standard_error():
    differences = [1.0, 0.0] * 200
    found = paired_bootstrap(differences, confidence=0.95, num_resamples=4000, seed=0)
    half_width = 1.96 * 0.5 / math.sqrt(400)
    assert found.mean == 0.5
    assert (found.low, found.high) == pytest.approx((0.5 - half_width, 0.5 + half_width), abs=0.006)
    assert found == paired_bootstrap(differences, confidence=0.95, num_resamples=4000, seed=0)


def scores(value, count=50):
    return {f"p{index:03d}": value for index in range(count)}


CONFIG = PromotionConfig(margin=0.02)


@pytest.mark.parametrize(
    ("candidate", "champion", "promote"), [(0.6, 0.5, True), (0.5, 0.5, True), (0.49, 0.5, True), (0.4, 0.5, False)]
)
def test_the_champion_moves_when_the_candidate_is_not_worse_by_the_margin(candidate, champion, promote):
    assert decide(scores(candidate), scores(champion), CONFIG, seed=0).promote is promote


def test_a_noisy_loss_does_not_promote_and_a_noisy_gain_does():
    worse = {**scores(0.5), **{f"p{index:03d}": 0.0 for index in range(10)}}
    assert not decide(worse, scores(0.5), CONFIG, seed=0).promote
    assert decide(scores(0.5), worse, CONFIG, seed=0).promote


def test_an_equal_mean_with_a_wide_interval_does_not_promote():
    mixed = {prompt: float(index % 2) for index, prompt in enumerate(scores(0.0))}
    decision = decide(mixed, scores(0.5), CONFIG, seed=0)
    assert (decision.difference, decision.promote) == (0.0, False)
    assert decision.low < -0.02 < 0 < decision.high


def test_only_prompts_that_both_measured_are_compared():
    candidate, champion = {"a": 1.0, "b": None, "c": 0.0}, {"a": 0.5, "b": 0.0, "d": 1.0}
    assert decide(candidate, champion, CONFIG, seed=0).difference == 0.5
    nothing = decide({"a": 1.0}, {"b": 1.0}, CONFIG, seed=0)
    assert (nothing.promote, "no held-out prompt" in nothing.reason) == (False, True)


def reward(prompt, index, correct, model=0.5):
    return {
        "group_id": prompt, "prompt_id": prompt, "sample_index": index, "is_correct": correct, "reward_model_reward": model,
    }  # fmt: skip


def completion(prompt, index, text):
    return {"group_id": prompt, "sample_index": index, "text": text, "completion_token_ids": [7] * len(text)}


def test_a_row_per_prompt_and_means_over_prompts():
    outcomes = {"b": [True, False, None, False], "a": [True, True, True, True]}
    rewards = [
        reward(prompt, index, value) for prompt, values in outcomes.items() for index, value in enumerate(values)
    ]
    texts = {
        ("a", 0): "<think>1</think>",
        ("b", 0): "<think>2</think>",
        ("b", 1): "<think>3</think>",
        ("b", 3): "<think> </think>",
    }
    completions = [
        completion(row["group_id"], row["sample_index"], texts.get((row["group_id"], row["sample_index"]), "x"))
        for row in rewards
    ]
    greedy = [reward("a", 0, True), reward("b", 0, None)]
    rows, metrics = evaluation_rows(completions, rewards, greedy, ks=(1, 4))
    assert [row["prompt_id"] for row in rows] == ["a", "b"]
    assert [(row["num_samples"], row["num_scored"], row["num_correct"]) for row in rows] == [(4, 4, 4), (4, 3, 1)]
    assert metrics["accuracy"] == pytest.approx((1 + 1 / 3) / 2)
    assert metrics["pass_at_1"] == pytest.approx(metrics["accuracy"])
    assert metrics["pass_at_4"] == 1.0  # only "a" has four scored samples
    assert metrics["greedy_accuracy"] == 1.0
    assert metrics["num_unscored"] == 1
    assert metrics["working_share"] == 3 / 8
    assert metrics["accuracy_given_working"] == pytest.approx(2 / 3)


def test_how_far_verifier_and_reward_model_agree_stands_beside_both():
    rewards = [reward("a", 0, True, 0.8), reward("a", 1, False, 0.9), reward("a", 2, None, 0.1)]
    texts = [completion("a", index, "x" * index) for index in range(3)]
    _, metrics = evaluation_rows(texts, rewards, [], ks=(1,))
    assert metrics["reward_model_gap"] == pytest.approx(0.85 - 0.5)
    assert (metrics["reward_model_auc"], metrics["reward_model_rank_correlation"]) == (0.0, -1.0)
    assert (metrics["num_agreement_rows"], metrics["num_agreement_left_out"]) == (2, 1)


def test_means_of_nothing_are_missing():
    rows, metrics = evaluation_rows([completion("a", 0, "x")], [reward("a", 0, None, None)], [], ks=(1,))
    assert rows[0]["pass_at_1"] is None
    assert {"accuracy", "pass_at_1", "reward_model_mean"}.isdisjoint(metrics)


def test_a_loss_of_exactly_the_margin_is_within_it():
    assert 0.48 - 0.5 < -0.02  # binary noise
    assert decide(scores(0.48), scores(0.5), CONFIG, seed=0).promote
    assert not decide(scores(0.479), scores(0.5), CONFIG, seed=0).promote


@pytest.mark.parametrize(
    ("text", "is_working"),
    [
        ("<think>5+8=13</think><answer>13</answer>", 1.0),
        ("<think></think><answer>13</answer>", 0.0),
        ("<think> </think><answer>13</answer></think>", 0.0),
        ("<think>5+8=13", 0.0),
        ("<think>5\n+8</think>", 1.0),
    ],
)
def test_working_is_a_think_block_with_text_in_it(text, is_working):
    _, metrics = evaluation_rows([completion("a", 0, text)], [reward("a", 0, True)], [], ks=(1,))
    assert metrics["working_share"] == is_working


def test_an_unscored_greedy_completion_is_counted_and_not_wrong():
    sampled = [reward("a", 0, True), reward("b", 0, True)]
    texts = [completion("a", 0, "x"), completion("b", 0, "x")]
    rows, metrics = evaluation_rows(texts, sampled, [reward("a", 0, True), reward("b", 0, None)], ks=(1,))
    assert (metrics["greedy_accuracy"], metrics["num_greedy_unscored"]) == (1.0, 1)
    assert [row["greedy_correct"] for row in rows] == [True, None]


def test_the_reward_model_mean_is_over_the_rows_that_it_scored():
    rewards = [reward("a", 0, True, 0.2), reward("a", 1, False, 0.6), reward("a", 2, False, None)]
    texts = [completion("a", index, "x") for index in range(3)]
    rows, metrics = evaluation_rows(texts, rewards, [], ks=(1,))
    assert rows[0]["reward_model_mean"] == pytest.approx(0.4)
    assert metrics["reward_model_mean"] == pytest.approx(0.4)


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no prompt was measured"):
        paired_bootstrap([], confidence=0.95, num_resamples=100, seed=0)
