"""Joining completions with rewards."""

import pytest

from tasks.grpo.config import AdvantageConfig
from tasks.grpo.samples import build_samples


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


def reward(group, index, value):
    return {"group_id": group, "sample_index": index, "reward": value}


CONFIG = AdvantageConfig(scale="none")


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
    rows, _ = build_samples(completions, rewards, AdvantageConfig(scale="none", truncated=policy))
    assert [row["advantage"] for row in rows] == pytest.approx(advantages)
    assert [row["is_masked"] for row in rows] == masked


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
