"""Points: right and wrong completions as labels, and their loss."""

import math

import pytest
import torch

from tasks.reward.config import PointsConfig
from tasks.reward.label_kinds import LABELS
from tasks.reward.losses import binary_cross_entropy
from tasks.reward.points import point_example, points_from_rows


def points(correct, texts=None, *, cap=99, seed=0, order=None):
    texts = texts or list(range(len(correct)))
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
    rewards = [{"group_id": "g", "sample_index": index, "is_correct": each} for index, each in enumerate(correct)]
    if order:
        completions, rewards = [completions[i] for i in order], [rewards[i] for i in order[::-1]]
    return points_from_rows(
        completions,
        rewards,
        {"p": "key"},
        PointsConfig(kind="points", max_points_per_group=cap),
        source="exact",
        origin_iteration=3,
        seed=seed,
    )


def test_right_is_one_wrong_is_zero_and_unknown_is_left_out():
    rows, metrics = points([True, False, None, False])
    labels = {row["completion_token_ids"][0]: row["label"] for row in rows}
    assert labels == {10: 1.0, 11: 0.0, 13: 0.0}
    assert metrics["positive_share"] == pytest.approx(1 / 3)
    assert (metrics["num_labels"], metrics["num_unscored"]) == (3, 1)
    assert {(row["origin_iteration"], row["prompt_key"]) for row in rows} == {(3, "key")}


def test_a_group_of_one_class_makes_points_although_it_makes_no_pair():
    assert [row["label"] for row in points([False, False])[0]] == [0.0, 0.0]


def test_equal_completions_make_one_point_and_contradicting_ones_none():
    rows, metrics = points([True, True, False, True], texts=[4, 4, 5, 5])
    assert [(row["completion_token_ids"], row["label"]) for row in rows] == [([14], 1.0)]
    assert metrics["num_contradicting_completions"] == 2


def test_the_cap_draws_by_the_seed_whatever_the_order_of_rows():
    drawn = lambda **settings: [row["label_id"] for row in points([True, False] * 3, cap=2, **settings)[0]]  # noqa: E731
    assert len(drawn()) == 2
    assert drawn(order=[3, 1, 5, 0, 2, 4]) == drawn()
    assert any(drawn(seed=seed) != drawn() for seed in range(1, 4))
    assert points([True, False] * 3, cap=2)[1]["num_labels_over_cap"] == 4


def test_nothing_labelled_has_no_share():
    rows, metrics = points([None, None])
    assert rows == []
    assert "positive_share" not in metrics


def test_a_completion_that_the_cut_takes_away_is_no_example():
    row = {**points([True])[0][0], "prompt_token_ids": [1, 2, 3]}
    assert point_example(row, 3) is None
    kept = point_example(row, 4)
    assert (kept.sequences, kept.positions, kept.targets, kept.num_tokens) == (([1, 2, 3, 10],), ([3],), (1.0,), (1,))


@pytest.mark.parametrize(
    ("score", "label", "loss", "gradient"),
    [
        (0.0, 1.0, 0.693147, -0.5),
        (2.0, 1.0, 0.126928, -0.119203),
        (2.0, 0.0, 2.126928, 0.880797),
        (2.0, 0.25, 1.626928, 0.630797),
        (100.0, 1.0, 0.0, 0.0),
        (100.0, 0.0, 100.0, 1.0),
        (-100.0, 1.0, 100.0, -1.0),
        (-100.0, 0.0, 0.0, 0.0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_binary_cross_entropy_values_and_gradients(score, label, loss, gradient, dtype):
    scores = torch.tensor([score], dtype=dtype, requires_grad=True)
    found = binary_cross_entropy(scores, torch.tensor([label]), denominator=1.0)
    found.backward()
    assert found.dtype == dtype
    assert (found.item(), scores.grad.item()) == pytest.approx((loss, gradient), abs=1e-6)


def test_binary_cross_entropy_sums_over_the_denominator_and_raises_half_precision():
    scores = torch.tensor([10.0, 0.0], dtype=torch.bfloat16)
    found = binary_cross_entropy(scores, torch.tensor([1.0, 0.0]), denominator=4.0)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx((4.54e-5 + math.log(2)) / 4, rel=1e-4)


@pytest.mark.parametrize(
    ("scores", "labels", "denominator", "message"),
    [
        ([0.0], [1.0], 0, "denominator 0"),
        ([0.0], [1.0], -1, "denominator -1"),
        ([0.0], [1.5], 1, "outside"),
        ([0.0], [-0.1], 1, "outside"),
        ([0.0, 1.0], [1.0], 1, "one label for each score"),
    ],
)
def test_binary_cross_entropy_refuses_what_has_no_meaning(scores, labels, denominator, message):
    with pytest.raises(ValueError, match=message):
        binary_cross_entropy(torch.tensor(scores), torch.tensor(labels), denominator=denominator)


def test_a_point_is_judged_by_its_score_as_log_odds():
    example = point_example(points([False])[0][0], 9)
    judged = LABELS[PointsConfig].judge(example, (1.5,))
    assert (judged.logits, judged.targets, judged.scores, judged.labels, judged.lengths) == (
        (1.5,), (0.0,), (1.5,), (0.0,), (1,),
    )  # fmt: skip
