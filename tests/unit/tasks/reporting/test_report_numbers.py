"""The numbers and the choices behind the report."""

import pytest

from tasks.reporting.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, chart_of
from tasks.reporting.samples import contrasts, with_texts
from tasks.reporting.steps import iteration_row, step_rows


def section(rows, without_reward, reward_mean, groups, no_signal, completions=0, truncated=0, **policy):
    found = {
        "rewards": {"num_rows": rows, "num_without_reward": without_reward, "reward_mean": reward_mean},
        "samples": {"num_groups": groups, "num_no_signal_groups": no_signal, "num_samples": rows},
        "completions": {"num_completions": completions, "num_truncated": truncated},
    }
    return {**found, "policy": policy} if policy else found


STAGES = {
    "step-002": section(8, 0, 0.75, 2, 0, kl=0.2, entropy=1.0, num_trained_tokens=30.0),
    "step-001-round-01": section(4, 2, 0.2, 1, 1, 4, 3),
    "step-001": section(4, 0, 0.5, 2, 1, 4, 1, kl=0.1, entropy=2.0, num_trained_tokens=10.0),
    "evaluation": section(100, 0, 0.0, 100, 100, 100, 100),
    "": {"rewards": {"num_rows": 9.0}},
}


def test_the_rounds_of_a_step_are_one_row_and_its_means_are_weighted():
    first, second = step_rows(STAGES)
    assert (first["step"], second["step"]) == (1, 2)
    assert first["reward_mean"] == pytest.approx((4 * 0.5 + 2 * 0.2) / 6)  # two rows of the round have no reward
    assert first["no_signal_share"] == pytest.approx(2 / 3)
    assert first["truncated_share"] == 0.5
    assert (first["kl"], first["entropy"]) == (0.1, 2.0)
    assert second["truncated_share"] is None  # no completions were counted


def test_an_iteration_sums_its_steps_and_leaves_the_evaluation_out():
    row = iteration_row(STAGES)
    assert row["reward_mean"] == pytest.approx((4 * 0.5 + 2 * 0.2 + 8 * 0.75) / 14)
    assert row["kl"] == pytest.approx((0.1 * 10 + 0.2 * 30) / 40)
    assert row["no_signal_share"] == pytest.approx(2 / 5)


def test_what_guards_look_at_is_a_share_of_rows_and_a_mean_over_updates():
    stages = {
        "step-001": section(4, 1, 0.5, 1, 0, grad_norm=2.0, num_updates=1.0),
        "step-002": section(12, 3, 0.5, 1, 0, grad_norm=4.0, num_updates=3.0),
        "step-003": section(0, 0, 0.0, 0, 0),
    }
    row = iteration_row(stages)
    assert row["unscored_share"] == pytest.approx(4 / 16)
    assert row["grad_norm"] == pytest.approx((2 + 3 * 4) / 4)
    nothing = step_rows(stages)[2]
    assert (nothing["unscored_share"], nothing["grad_norm"]) == (None, None)


def test_a_kl_that_stands_in_the_reward_is_read_from_the_samples():
    stages = {"step-001": {"samples": {"kl": 0.3, "num_samples": 4.0}, "policy": {"entropy": 1.0}}}
    assert iteration_row(stages)["kl"] == 0.3
    assert iteration_row(stages)["entropy"] is None  # nothing was trained


def test_nothing_measured_is_none_everywhere():
    assert set(iteration_row({}).values()) == {None}
    assert step_rows({}) == []


def row(group, index, reward):
    return {
        "group_id": group, "sample_index": index, "reward": reward, "is_correct": None, "reward_model_reward": None,
        "prompt": group, "answer": None, "text": None, "completion_token_ids": [], "is_truncated": None,
    }  # fmt: skip


def test_the_prompts_whose_rewards_lie_furthest_apart_come_first():
    rows = [
        row("near", 0, 0.5), row("near", 1, 0.6), row("far", 0, 0.1), row("far", 1, 0.9), row("far", 2, 0.9),
        row("equal", 0, 0.3), row("equal", 1, 0.3), row("none", 0, None), row("none", 1, 0.9), row("also", 0, 0.0), row("also", 1, 0.8),
    ]  # fmt: skip
    found = contrasts(rows, 3)
    assert [(best.label, worst.label) for best, worst in found] == [
        ("also · 1", "also · 0"),
        ("far · 1", "far · 0"),
        ("near · 1", "near · 0"),
    ]
    assert contrasts(rows, 1) == found[:1]
    assert contrasts(rows[::-1], 3) == found


def test_rewards_of_another_run_are_refused():
    rewards = [{"group_id": "g", "sample_index": 0}]
    selection = [{"group_id": "g"}]
    with pytest.raises(KeyError):
        with_texts(rewards, [], selection)
    with pytest.raises(KeyError):
        with_texts(rewards, [{"group_id": "g", "sample_index": 0}], [])


def test_the_chart_spans_its_box_and_breaks_where_nothing_was_measured():
    chart = chart_of([0, 1, 2, 3], [("a", [0.0, 1.0, None, 0.5])], [False, False, True, False])
    (line,) = chart.lines
    low, high, middle = HEIGHT - BOTTOM, TOP, (HEIGHT - BOTTOM + TOP) / 2
    span = (WIDTH - LEFT - RIGHT) / 3
    assert line.strokes == (f"{float(LEFT)},{float(low)} {round(LEFT + span, 1)},{float(high)}",)
    assert [(x, y) for x, y, _ in line.dots][-1] == (WIDTH - RIGHT, middle)
    assert [said for _, _, said in line.dots] == [
        "iteration 0: a 0.000",
        "iteration 1: a 1.000",
        "iteration 3: a 0.500",
    ]
    assert chart.marks == (round(LEFT + 2 * span, 1),)


def test_one_iteration_is_no_course_and_series_of_other_lengths_are_refused():
    assert chart_of([0], [("a", [0.5])], [False]) is None
    with pytest.raises(ValueError, match="2 values of the iterations"):
        chart_of([0, 1], [("a", [0.5])], [False, False])


def test_many_iterations_have_at_most_a_dozen_names_on_the_axis():
    chart = chart_of(list(range(100)), [("a", [0.5] * 100)], [False] * 100)
    assert 6 <= len(chart.ticks) <= 12
    assert chart.ticks[0][1] == 0
