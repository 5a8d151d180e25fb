"""Rows of a strip: what an iteration began with stands beside what it sampled; the last row is what it made."""

import pytest

from tasks.reporting.strip import Tile, strip_of
from tasks.reporting.strip_rows import rows_of


def ref(role, version):
    return {"role": role, "version": str(version)}


def record(iteration, *, reference, reward, refused=None, **metrics):
    return {
        "iteration": iteration,
        "policy": ref("policy", iteration + 1),
        "reference": ref("policy", reference),
        "reward": ref("reward", reward),
        "refused_reward": refused,
        "metrics": metrics,
    }


def rows(*records, num_rollouts=None):
    return rows_of(
        records, num_rollouts or {}, lambda role, version: f"#{role}/{version}", lambda iteration: f"#data/{iteration}"
    )


FIRST = record(0, reference=1, reward=1, **{"evaluation/accuracy": 0.25})


def test_a_row_for_each_iteration_and_one_for_what_the_last_made():
    second = record(1, reference=1, reward=2, **{"evaluation/accuracy": 0.5, "reward_mean": 0.125})
    first_row, last_row = rows(FIRST, second, num_rollouts={1: 64})
    assert first_row.policy == Tile("policy v1", "iteration 0 · accuracy 0.250", "#policy/1")
    assert first_row.data == Tile("rollouts 1", "64 rows · reward 0.125", "#data/1")
    assert first_row.reward == Tile("reward model v1", "iteration 0", "#reward/1")
    assert last_row.policy == Tile("policy v2", "iteration 1 · accuracy 0.500", "#policy/2")
    assert last_row.data is None
    assert last_row.reward == Tile("reward model v2", "iteration 1", "#reward/2")


def test_after_a_rollback_the_row_begins_with_the_policy_that_was_gone_back_to():
    third = record(2, reference=1, reward=3)
    _, second_row, _ = rows(FIRST, record(1, reference=1, reward=2), third)
    assert (second_row.policy.title, second_row.reward.title) == ("policy v1", "reward model v2")


def test_a_refused_reward_model_stands_in_the_row_of_what_was_made_and_did_not_score():
    refused = record(
        1, reference=1, reward=1, refused=ref("reward", 2), **{"reward_model/heldout_accuracy_after": 0.75}
    )
    third = record(2, reference=2, reward=3)
    assert rows(FIRST, refused)[-1].reward == Tile("reward model v2", "iteration 1 · accuracy 0.750", "#reward/2")
    assert rows(FIRST, refused, third)[1].reward.title == "reward model v1"


def test_what_was_made_before_the_first_row_is_called_earlier():
    later = record(6, reference=6, reward=7)
    (first_row, _) = rows(record(5, reference=5, reward=6), later)
    assert first_row.policy.detail == "iteration 5"
    (first_row, _) = rows(record(5, reference=5, reward=6), record(6, reference=2, reward=7))
    assert first_row.policy == Tile("policy v2", "earlier", "#policy/2")


def test_the_bootstrap_is_one_row_without_rollouts():
    (only,) = rows(FIRST)
    assert (only.policy.title, only.data, only.reward.title) == ("policy v1", None, "reward model v1")


@pytest.mark.parametrize(("role", "num_marked"), [("policy", 2), ("", 0)])
def test_the_rows_become_a_strip_with_one_outlined_box(role, num_marked):
    strip = strip_of(rows(FIRST, record(1, reference=1, reward=2)), "policy-2", marked=role)
    assert strip.html.count('<a href="#policy/') == 2
    assert strip.html.count('<a href="#data/1">') == 1
    (last,) = [svg for path, svg in strip.pictures.items() if path.endswith("1p.svg")]
    assert last.count("#c2410c") == num_marked // 2
