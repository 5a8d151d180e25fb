"""Joining completions with rewards."""

import math

import pytest
import torch

from tasks.grpo import samples as module
from tasks.grpo.config import UpdateConfig
from tasks.grpo.critic import Critic
from tasks.grpo.sample_metrics import of_rounds
from tasks.grpo.samples import Models
from tests.conftest import make_llama


def completion(group, index, *, ids=(5, 2), finish="stop", truncated=False):
    return {
        "group_id": group,
        "prompt_id": "p",
        "sample_index": index,
        "prompt_token_ids": [1],
        "completion_token_ids": list(ids),
        "sampler_logprobs": [-0.5] * len(ids),
        "finish_reason": finish,
        "is_truncated": truncated,
        "temperature": 1.0,
        "policy_digest": "d",
    }


def reward(group, index, value, **changes):
    row = {
        "group_id": group,
        "sample_index": index,
        "reward": value,
        "is_correct": None if value is None else value >= 1,
        "exact_reward": value,
        "step_rewards": None,
        "step_ends": None,
    }
    return {**row, **changes}


def config(algorithm="dr_grpo", **changes):
    return UpdateConfig.model_validate({"algorithm": algorithm, "optimiser": {"learning_rate": 1.0}, **changes})


CONFIG = config()


def build_samples(completions, rewards, settings=CONFIG, models=None, max_new_tokens=8):
    return module.build_samples(
        completions,
        rewards,
        settings,
        weights={"exact": 1.0},
        max_new_tokens=max_new_tokens,
        models=models or Models(),
    )


def test_rows_are_joined_by_id_whatever_their_order():
    completions = [completion("a", 0), completion("b", 0), completion("a", 1), completion("b", 1)]
    rewards = [reward("b", 1, 4.0), reward("a", 1, 0.0), reward("b", 0, 2.0), reward("a", 0, 1.0)]
    rows, metrics = build_samples(completions, rewards, CONFIG)
    assert [row["advantage"] for row in rows] == [0.5, -1.0, -0.5, 1.0]
    assert metrics["reward_mean"] == 1.75


@pytest.mark.parametrize(
    ("policy", "advantages", "masked"),
    [
        ("keep", [0.5, -0.5, 0.5, -0.5], [False] * 4),
        ("mask", [1 / 3, -2 / 3, 0.0, 1 / 3], [False, False, True, False]),
        ("zero", [0.5, -0.5, -0.5, 0.5], [False] * 4),
    ],
)
def test_truncated_completions_are_kept_masked_or_counted_as_zero(policy, advantages, masked):
    completions = [completion("a", index, truncated=index == 2, finish="length") for index in range(4)]
    values = [1.0, 0.0, 1.0, 0.0 if policy == "keep" else 1.0]
    rewards = [reward("a", index, value) for index, value in enumerate(values)]
    rows, _ = build_samples(completions, rewards, config(truncated=policy))
    assert [row["advantage"] for row in rows] == pytest.approx(advantages)
    assert [row["is_masked"] for row in rows] == masked


@pytest.mark.parametrize(
    ("scale", "expected"),
    [("none", [1 / 3, -2 / 3, 0.0, 1 / 3]), ("std", [0.577250, -1.154501, 0.0, 0.577250])],
)
def test_a_completion_that_nobody_scored_leaves_the_statistics_of_its_group(scale, expected):
    rewards = [reward("a", index, value) for index, value in enumerate([1.0, 0.0, None, 1.0])]
    settings = config(advantages={"kind": "group", "scale": scale} | ({"std_eps": 1e-4} if scale == "std" else {}))
    rows, metrics = build_samples([completion("a", index) for index in range(4)], rewards, settings)
    assert [row["advantage"] for row in rows] == pytest.approx(expected, abs=1e-6)
    assert [row["is_masked"] for row in rows] == [False, False, True, False]
    assert metrics["reward_mean"] == pytest.approx(2 / 3)


def test_the_only_scored_completion_of_a_group_has_advantage_zero():
    rewards = [reward("a", index, value) for index, value in enumerate([None, 1.0, None])]
    rows, _ = build_samples([completion("a", index) for index in range(3)], rewards, CONFIG)
    assert [row["advantage"] for row in rows] == [0.0, 0.0, 0.0]


def test_aborted_empty_and_unscored_completions_are_masked():
    completions = [
        completion("a", 0),
        completion("a", 1, finish="abort"),
        completion("a", 2, ids=()),
        completion("a", 3),
        completion("a", 4),
    ]
    rewards = [reward("a", index, value) for index, value in enumerate([1.0, 1.0, 1.0, None, 0.0])]
    rows, metrics = build_samples(completions, rewards, CONFIG)
    assert [row["is_masked"] for row in rows] == [False, True, True, True, False]
    assert [row["advantage"] for row in rows] == [0.5, 0, 0, 0, -0.5]
    assert metrics["num_masked"] == 3


def test_groups_without_signal_and_without_rows_are_counted_apart():
    completions = [completion(group, index) for group in "abc" for index in range(2)]
    values = {"a": (1.0, 1.0), "b": (None, None), "c": (1.0, 0.0)}
    rewards = [reward(group, index, values[group][index]) for group in "abc" for index in range(2)]
    _, metrics = build_samples(completions, rewards, CONFIG)
    assert (metrics["num_groups"], metrics["num_no_signal_groups"], metrics["num_unusable_groups"]) == (3, 1, 1)


def test_a_mean_of_no_rewards_is_missing_and_not_a_number():
    _, metrics = build_samples([completion("a", 0)], [reward("a", 0, None)], CONFIG)
    assert "reward_mean" not in metrics


def test_a_completion_without_rewards_is_an_error_that_names_it():
    with pytest.raises(ValueError, match=r"\('a', 1\)"):
        build_samples([completion("a", 0), completion("a", 1)], [reward("a", 0, 1.0)], CONFIG)


def test_a_row_that_comes_twice_is_an_error():
    with pytest.raises(ValueError, match="1 rows twice"):
        build_samples([completion("a", 0)] * 2, [reward("a", 0, 1.0)], CONFIG)


def group(values, name="a", **changes):
    completions = [completion(name, index, **changes) for index in range(len(values))]
    return completions, [reward(name, index, value) for index, value in enumerate(values)]


def joined(*groups):
    return [row for each, _ in groups for row in each], [row for _, each in groups for row in each]


class TestDynamicSampling:
    MIXED, RIGHT, WRONG = group([1.0, 0.0]), group([1.0, 1.0], "b"), group([0.2, 0.3], "c")

    def masked(self, **changes):
        settings = config("dapo", overlong="none", **changes)
        rows, metrics = build_samples(*joined(self.MIXED, self.RIGHT, self.WRONG), settings)
        return [row["is_masked"] for row in rows], metrics

    def test_groups_whose_completions_are_all_right_or_all_wrong_are_masked_and_counted(self):
        masked, metrics = self.masked()
        assert masked == [False, False, True, True, True, True]
        assert (metrics["num_signal_groups"], metrics["num_no_signal_groups"], metrics["num_masked"]) == (1, 2, 4)
        assert metrics["reward_mean"] == 0.5

    def test_rewards_may_decide_instead_of_correctness(self):
        masked, metrics = self.masked(group_filter={"by": "reward"})
        assert masked == [False, False, True, True, False, False]
        assert metrics["num_signal_groups"] == 2

    def test_without_it_groups_without_signal_stay(self):
        masked, metrics = self.masked(group_filter="keep")
        assert masked == [False] * 6
        assert metrics["num_signal_groups"] == 2

    def test_wrong_answers_of_different_lengths_have_no_signal(self):
        completions = [completion("a", 0, ids=[3] * 8), completion("a", 1, ids=[3] * 2)]
        rewards = [reward("a", index, 0.0) for index in range(2)]
        settings = config("dapo", group_filter={"by": "reward"})
        rows, _ = build_samples(completions, rewards, settings)
        assert [row["is_masked"] for row in rows] == [True, True]
        assert [row["overlong_penalty"] for row in rows] == [-1.0, 0.0]

    def test_rounds_are_summed_and_both_counts_are_kept(self):
        rounds = [
            {"num_groups": 4.0, "num_signal_groups": 1.0, "num_samples": 8.0, "num_masked": 6.0, "reward_mean": 0.5},
            {"num_groups": 3.0, "num_signal_groups": 2.0, "num_samples": 6.0, "num_masked": 2.0, "reward_mean": 0.8},
        ]
        total = of_rounds(rounds)
        assert (total["num_replaced_groups"], total["num_unfilled_groups"]) == (3.0, 1.0)
        assert (total["num_groups"], total["num_signal_groups"], total["num_samples"]) == (7.0, 3.0, 14.0)
        assert total["reward_mean"] == pytest.approx((2 * 0.5 + 4 * 0.8) / 6)

    def test_a_round_without_a_mean_does_not_make_one_up(self):
        rounds = [{"num_groups": 1.0, "num_signal_groups": 0.0, "num_samples": 2.0, "num_masked": 2.0}]
        assert "reward_mean" not in of_rounds(rounds)


def test_the_overlong_punishment_is_part_of_the_reward():
    completions = [completion("a", 0, ids=[3] * 8), completion("a", 1, ids=[3] * 4)]
    rewards = [reward("a", index, 1.0) for index in range(2)]
    rows, metrics = build_samples(completions, rewards, config(overlong={"kind": "soft", "cache_share": 0.5}))
    assert [row["reward"] for row in rows] == [0.0, 1.0]
    assert [row["advantage"] for row in rows] == [-0.5, 0.5]
    assert (metrics["num_overlong"], metrics["overlong_penalty_mean"]) == (1, -0.5)


def test_under_each_source_the_overlong_punishment_is_a_source_of_its_own():
    completions = [completion("a", index, ids=[3] * length) for index, length in enumerate((8, 4, 4))]
    rewards = [reward("a", index, value) for index, value in enumerate((100.0, 0.0, 0.0))]
    settings = config("grpo", kl="none", overlong={"kind": "soft"}, advantages={"normalise": "each_source"})
    rows, _ = build_samples(completions, rewards, settings)
    assert [row["advantage"] for row in rows] == pytest.approx([0.0] * 3, abs=1e-4)


class TestProcess:
    STEPS = [
        reward("a", 0, 1.0, step_rewards=[1.0, 0.0], step_ends=[0, 1]),
        reward("a", 1, 0.0, step_rewards=[1.0], step_ends=[1]),
    ]
    COMPLETIONS = [completion("a", 0), completion("a", 1)]

    def test_tokens_have_advantages_of_their_own(self):
        rows, metrics = build_samples(self.COMPLETIONS, self.STEPS, config("grpo_process", kl="none"))
        assert [row["advantage"] for row in rows] == [None, None]
        assert rows[0]["token_advantages"] == pytest.approx([-0.577350, -1.154701], abs=1e-5)
        assert rows[1]["token_advantages"] == pytest.approx([0.577350] * 2, abs=1e-5)
        assert metrics["num_signal_groups"] == 1

    def test_a_completion_whose_steps_nobody_scored_is_masked(self):
        rows, _ = build_samples(self.COMPLETIONS, [self.STEPS[0], reward("a", 1, 1.0)], config("grpo_process"))
        assert [row["is_masked"] for row in rows] == [False, True]
        assert rows[0]["token_advantages"] == pytest.approx([0.0, -0.707107], abs=1e-5)

    def test_the_steps_of_a_truncated_completion_may_count_as_zero(self):
        completions = [completion("a", 0, truncated=True, finish="length"), completion("a", 1)]
        rows, _ = build_samples(completions, self.STEPS, config("grpo_process", truncated="zero"))
        assert rows[0]["token_advantages"] == pytest.approx([-1.154701, -0.577350], abs=1e-5)

    def test_dynamic_sampling_asks_for_a_difference_among_steps(self):
        equal = [reward("a", index, float(index), step_rewards=[1.0], step_ends=[1]) for index in range(2)]
        settings = config("grpo_process", group_filter="dynamic")
        rows, metrics = build_samples(self.COMPLETIONS, equal, settings)
        assert [row["is_masked"] for row in rows] == [True, True]
        assert metrics["num_signal_groups"] == 0


class TestKlInTheReward:
    SETTINGS = config("rloo", kl={"beta": 0.5})

    def models(self):
        return Models(policy=make_llama(), reference=make_llama(seed=1))

    def logprobs(self, model, ids=(5, 2)):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[1, *ids]])).logits[0, :-1]
        return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()

    def test_the_penalty_is_the_engines_number_against_the_references(self):
        models = self.models()
        rows, metrics = build_samples(*group([1.0, 0.0]), self.SETTINGS, models)
        reference = self.logprobs(models.reference)
        assert rows[0]["reference_logprobs"] == pytest.approx(reference, abs=1e-5)
        kl = sum(-0.5 - each for each in reference)
        assert metrics["kl"] == pytest.approx(kl / 2, abs=1e-5)
        assert rows[0]["advantage"] == pytest.approx(1.0, abs=1e-9)  # both pay the same: the ids are the same

    def test_where_the_engine_said_nothing_the_policy_that_sampled_is_asked(self):
        models = self.models()
        completions, rewards = group([1.0, 0.0])
        completions[0]["sampler_logprobs"] = [-0.5, math.nan]
        completions[1]["sampler_logprobs"] = None
        rows, _ = build_samples(completions, rewards, self.SETTINGS, models)
        policy, reference = self.logprobs(models.policy), self.logprobs(models.reference)
        first = 1.0 - 0.5 * (-0.5 - reference[0] + policy[1] - reference[1])
        second = 0.0 - 0.5 * (sum(policy) - sum(reference))
        assert rows[0]["advantage"] == pytest.approx(first - second, abs=1e-5)

    def test_a_masked_completion_is_not_asked_about(self):
        completions, rewards = group([1.0, None])
        rows, metrics = build_samples(completions, rewards, self.SETTINGS, self.models())
        assert rows[1]["reference_logprobs"] is None
        assert metrics["num_masked"] == 1


def test_a_critic_gives_values_and_returns(tmp_path):
    make_llama().save_pretrained(tmp_path)
    critic = Critic.from_policy(tmp_path, device="cpu", seed=1)
    settings = config("ppo", kl="none", advantages={"normalise": "none"}, critic={"optimiser": {"learning_rate": 1.0}})
    rows, _ = build_samples(*group([1.0, 0.0]), settings, Models(critic=critic))
    first, second = rows[0]["values"]
    delta = 1.0 - second
    assert rows[0]["token_advantages"] == pytest.approx([second - first + 0.95 * delta, delta], abs=1e-6)
    assert rows[0]["returns"] == pytest.approx([second + 0.95 * delta, 1.0], abs=1e-6)


@pytest.mark.parametrize("algorithm", ["grpo", "grpo_process", "dapo", "reinforce_pp", "rft", "rloo"])
def test_no_completions_make_no_samples_and_no_means(algorithm):
    rows, metrics = build_samples([], [], config(algorithm), TestKlInTheReward().models())
    assert rows == []
    assert metrics["num_samples"] == 0
    assert not any(name.endswith("_mean") or name == "kl" for name in metrics)


@pytest.mark.parametrize("algorithm", ["grpo", "grpo_process", "dapo", "reinforce_pp", "rft", "rloo"])
def test_when_every_completion_is_empty_all_are_masked(algorithm):
    completions, rewards = group([1.0, 0.0], ids=())
    rows, metrics = build_samples(completions, rewards, config(algorithm), TestKlInTheReward().models())
    assert [row["is_masked"] for row in rows] == [True, True]
    assert metrics["num_unusable_groups"] + metrics["num_no_signal_groups"] == 1
