"""The anchor set, and what a loss on it blocks."""

import pytest

from tasks.reward.anchor import anchor_rows, compare, verdict_of
from tasks.reward.config import AnchorConfig, HistoryReplay
from tasks.reward.replay import mix


def labels(num_prompts, per_prompt):
    return [
        {"label_id": f"{prompt}:{index}", "prompt_key": f"key {prompt}", "origin_iteration": 0}
        for prompt in range(num_prompts)
        for index in range(per_prompt)
    ]


def drawn(rows, *, num_rows=256, seed=0):
    return [row["label_id"] for row in anchor_rows(rows, AnchorConfig(num_rows=num_rows), seed=seed)]


@pytest.mark.parametrize(
    ("num_prompts", "per_prompt", "num_rows", "expected"),
    [
        (200, 10, 256, 250),  # 25 whole prompts; a 26th would pass 256
        (20, 2, 256, 8),  # a fifth of 40
        (20, 3, 10, 9),
        (4, 1, 256, 0),  # a fifth of 4 is no whole label
        (2, 8, 256, 0),  # no whole prompt fits into 3
        (200, 10, 0, 0),
        (0, 0, 256, 0),
    ],
)
def test_the_anchor_set_holds_whole_prompts_and_at_most_a_fifth(num_prompts, per_prompt, num_rows, expected):
    rows = labels(num_prompts, per_prompt)
    found = drawn(rows, num_rows=num_rows)
    assert len(found) == expected
    prompts = {name.split(":")[0] for name in found}
    assert len(found) == len(prompts) * per_prompt


def test_the_anchor_set_depends_on_the_seed_and_not_on_the_order_of_rows():
    rows = labels(50, 2)
    assert sorted(drawn(rows)) == sorted(drawn(rows[::-1]))
    assert sorted(drawn(rows)) != sorted(drawn(rows, seed=1))


def test_no_row_of_an_anchor_prompt_is_trained_on_fresh_or_replayed():
    fresh, history = labels(10, 1), [{**row, "label_id": f"old {row['label_id']}"} for row in labels(10, 2)]
    keys = {"key 3", "key 7"}
    rows, metrics = mix(fresh, history, HistoryReplay(fraction=1.0), seed=0, heldout_keys=set(), anchor_keys=keys)
    assert keys.isdisjoint(row["prompt_key"] for row in rows)
    assert (metrics["num_fresh"], metrics["num_history"], metrics["num_replayed"]) == (8, 16, 16)
    assert metrics["num_anchor_rows_left_out"] == 6


def test_a_tenth_is_taken_of_the_history_without_the_anchor_set():
    history = labels(100, 1)
    keys = {f"key {index}" for index in range(20)}
    fresh = [{"label_id": "new", "prompt_key": "new", "origin_iteration": 1}]
    assert mix(fresh, history, HistoryReplay(), seed=0, heldout_keys=set(), anchor_keys=keys)[1]["num_replayed"] == 8


def by_prompt(*values):
    return {f"key {index:02d}": value for index, value in enumerate(values)}


CONFIG = AnchorConfig(margin=0.05)


def test_a_loss_beyond_doubt_is_refused_and_one_of_exactly_the_margin_is_not():
    before = by_prompt(*[1.0] * 40)
    refused = compare(before, by_prompt(*[0.9] * 40), CONFIG, seed=0)
    assert refused.is_refused
    assert (refused.difference, refused.low, refused.high) == pytest.approx((-0.1, -0.1, -0.1))
    assert not compare(before, by_prompt(*[0.95] * 40), CONFIG, seed=0).is_refused
    assert compare(before, by_prompt(*[0.949] * 40), CONFIG, seed=0).is_refused


def test_a_loss_within_the_noise_is_not_refused_although_its_mean_passes_the_margin():
    # 4 of 20 prompts turned wrong and 1 right: -0.15, and the interval reaches above -0.05.
    before = by_prompt(*[1.0] * 19, 0.0)
    after = by_prompt(*[0.0] * 4, *[1.0] * 16)
    found = compare(before, after, CONFIG, seed=0)
    assert found.difference == pytest.approx(-0.15)
    assert found.high > -0.05
    assert not found.is_refused


def test_a_better_model_is_not_refused():
    assert not compare(by_prompt(*[0.5] * 30), by_prompt(*[0.9] * 30), CONFIG, seed=0).is_refused


def test_prompts_are_paired_by_key_and_not_by_place():
    before = by_prompt(*[1.0, 0.0] * 10)
    after = dict(sorted(before.items(), reverse=True))
    found = compare(before, after, CONFIG, seed=0)
    assert (found.low, found.high) == (0.0, 0.0)


def test_a_few_prompts_say_nothing_and_refuse_nothing():
    assert compare({}, {}, CONFIG, seed=0) is None
    assert compare(by_prompt(*[1.0] * 9), by_prompt(*[0.0] * 9), CONFIG, seed=0) is None
    assert compare(by_prompt(*[1.0] * 10), by_prompt(*[0.0] * 10), CONFIG, seed=0).is_refused
    assert verdict_of({"is_refused": 0.0}, CONFIG) == (False, "fewer than 10 anchor prompts, too few to compare on")


def test_models_measured_on_different_prompts_are_not_compared():
    with pytest.raises(ValueError, match="not on the same ones"):
        compare({"a": 1.0}, {"b": 1.0}, CONFIG, seed=0)


def test_the_verdict_tells_its_evidence():
    metrics = {
        "is_refused": 1.0,
        "anchor_difference": -0.1,
        "anchor_low": -0.15,
        "anchor_high": -0.06,
        "anchor_num_labels_after": 129.0,
    }
    is_refused, reason = verdict_of(metrics, CONFIG)
    assert is_refused
    assert reason == (
        "refused: accuracy on 129 anchor labels -0.100 [-0.150, -0.060] against the last good reward model: "
        "worse by more than the margin 0.05"
    )
    assert verdict_of({**metrics, "is_refused": 0.0}, CONFIG)[1].startswith("accuracy on 129 anchor labels -0.100")
