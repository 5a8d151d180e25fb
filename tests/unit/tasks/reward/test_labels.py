"""Preference pairs within a group."""

import random

import pytest

from tasks.reward.config import PairsConfig
from tasks.reward.pairs import pairs_from_rows


def pairs(rewards, texts=None, *, cap=99, margin=0.05, seed=0, order=None):
    texts = texts or list(range(len(rewards)))
    completions = [
        {
            "group_id": "g",
            "prompt_id": "p",
            "sample_index": index,
            "prompt_token_ids": [1],
            "completion_token_ids": [10 + text],
        }
        for index, text in enumerate(texts)
    ]
    rows = [
        {"group_id": "g", "sample_index": index, "exact_reward": None if reward is None else float(reward)}
        for index, reward in enumerate(rewards)
    ]
    if order:
        completions, rows = [completions[i] for i in order], [rows[i] for i in order[::-1]]
    return pairs_from_rows(
        completions,
        rows,
        {"p": "key"},
        PairsConfig(max_pairs_per_group=cap, min_margin=margin),
        source="exact",
        origin_iteration=3,
        seed=seed,
    )


@pytest.mark.parametrize(
    ("rewards", "count"),
    [([1, 1, 0, 0], 4), ([1, 1, 1, 1], 0), ([None, 1, 0, 1], 2), ([0.50, 0.49], 0), ([0.35, 0.30], 1), ([], 0)],
)
def test_ties_small_margins_and_unscored_rows_make_no_pair(rewards, count):
    found, metrics = pairs(rewards)
    assert len(found) == count == metrics["num_labels"]
    assert all(pair["chosen_reward"] > pair["rejected_reward"] for pair in found)


def test_the_higher_reward_is_chosen():
    found, _ = pairs([0.2, 0.9])
    assert (found[0]["chosen_token_ids"], found[0]["rejected_token_ids"]) == ([11], [10])
    assert (found[0]["origin_iteration"], found[0]["prompt_key"]) == (3, "key")


def test_equal_completions_make_one_distinct_pair():
    assert len(pairs([1, 1, 0, 0], texts=[4, 4, 5, 5])[0]) == 1


def test_a_scorer_that_contradicts_itself_loses_both_rows():
    found, metrics = pairs([1, 0, 0], texts=[4, 4, 5])
    assert found == []
    assert metrics["num_contradicting_completions"] == 2


def test_the_cap_is_kept_and_drawn_by_the_seed_whatever_the_order_of_rows():
    rewards = [1, 1, 1, 0, 0, 0]
    drawn = [pair["label_id"] for pair in pairs(rewards, cap=3)[0]]
    order = list(range(6))
    random.Random(1).shuffle(order)
    assert len(drawn) == 3
    assert [pair["label_id"] for pair in pairs(rewards, cap=3, order=order)[0]] == drawn
    assert any([pair["label_id"] for pair in pairs(rewards, cap=3, seed=seed)[0]] != drawn for seed in range(1, 4))


def test_a_difference_of_exactly_the_margin_makes_a_pair():
    assert 0.3 - 0.25 < 0.05  # binary noise, not a smaller difference
    assert len(pairs([0.3, 0.25], margin=0.05)[0]) == 1


def test_what_was_left_out_is_counted():
    _, metrics = pairs([1, 1, 0, 0, None], cap=3)
    assert (metrics["num_labels"], metrics["num_labels_over_cap"], metrics["num_unscored"]) == (3, 1, 1)


def completion(index, ids=(1,)):
    return {
        "group_id": "g",
        "prompt_id": "p",
        "sample_index": index,
        "prompt_token_ids": [1],
        "completion_token_ids": list(ids),
    }


def reward(index, value):
    return {"group_id": "g", "sample_index": index, "exact_reward": value}


@pytest.mark.parametrize(
    ("completions", "rewards", "message"),
    [
        ([completion(0)], [reward(0, 1.0), reward(1, 0.0)], "sample 1 has no completion"),
        ([completion(0)], [reward(0, 1.0), reward(0, 0.0)], "sample 0 comes twice"),
        ([completion(0), completion(0)], [reward(0, 1.0)], "1 completions repeat"),
        ([completion(0)], [reward(0, float("nan"))], "sample 0 is nan"),
    ],
)
def test_tables_that_do_not_belong_together_are_refused(completions, rewards, message):
    with pytest.raises(ValueError, match=message):
        pairs_from_rows(completions, rewards, {"p": "key"}, PairsConfig(), source="exact", origin_iteration=0, seed=0)


def test_the_same_samples_in_another_iteration_are_other_pairs():
    rows = [completion(0, [5]), completion(1, [6])], [reward(0, 1.0), reward(1, 0.0)]
    first, second = (
        pairs_from_rows(*rows, {"p": "key"}, PairsConfig(), source="exact", origin_iteration=number, seed=0)[0]
        for number in (1, 2)
    )
    assert first[0]["label_id"] != second[0]["label_id"]
