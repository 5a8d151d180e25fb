"""How sources add up to a reward."""

import math

import pytest

from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.totals import check_failures, combine, reward_rows
from tasks.verifiers.verdict import failed, scored, timed_out, unscored

WEIGHTS = {"ok": 1.0, "shape": 0.1, "model": 0.0}


@pytest.mark.parametrize(("ok", "shape", "total"), [(1, 1, 1.1), (1, 0, 1.0), (0, 1, 0.1), (0, 0, 0.0)])
def test_a_right_answer_beats_every_shape(ok, shape, total):
    assert combine({"ok": scored(ok), "shape": scored(shape), "model": unscored("")}, WEIGHTS) == pytest.approx(total)


def test_a_source_that_failed_takes_the_reward_away():
    for broken in (failed("x"), timed_out("x")):
        assert combine({"ok": scored(1), "shape": broken, "model": scored(1)}, WEIGHTS) is None


def test_a_source_that_does_not_apply_is_left_out():
    assert combine({"ok": scored(1), "shape": unscored("x"), "model": scored(1)}, WEIGHTS) == 1.0


def test_no_source_means_no_reward_which_is_not_zero():
    assert combine({"ok": unscored("x"), "shape": unscored("x"), "model": scored(0.7)}, WEIGHTS) is None


def test_a_source_of_weight_zero_can_neither_give_nor_take():
    assert combine({"ok": scored(1), "shape": scored(0), "model": failed("x")}, WEIGHTS) == 1.0


CONFIG = ScoringConfig.model_validate(
    {
        "correctness": "exact",
        "reward_model_weight": 0.5,
        "verifiers": [{"kind": "exact"}, {"kind": "format", "weight": 0.1}],
    }
)


def rows(verdicts, scores):
    completions = [{"group_id": "g", "prompt_id": "p", "sample_index": index} for index in range(len(verdicts))]
    return reward_rows(completions, verdicts, scores, CONFIG)


def test_every_source_has_its_reward_status_and_reason():
    found, metrics = rows([[scored(1), scored(0, "why")], [unscored("gold"), scored(1)]], [0.0, math.log(3)])
    assert found[0]["reward"] == pytest.approx(1 + 0.5 * 0.5)
    assert found[1]["reward"] == pytest.approx(0.1 + 0.5 * 0.75)
    assert [row["is_correct"] for row in found] == [True, None]
    assert (found[0]["format_reward"], found[0]["format_reason"]) == (0.0, "why")
    assert (found[1]["exact_status"], found[1]["exact_reward"]) == ("unscored", None)
    assert (metrics["accuracy"], metrics["num_exact_unscored"], metrics["exact_mean"]) == (1.0, 1, 1.0)


def test_unscored_rows_leave_the_accuracy_alone():
    verdicts = [[unscored("x"), scored(0)]] * 2 + [[scored(1), scored(0)], [scored(0), scored(0)]]
    _, metrics = rows(verdicts, [0.0] * 4)
    assert metrics["accuracy"] == 0.5
    assert metrics["num_exact_unscored"] == 2


def test_without_a_reward_model_its_column_is_unscored():
    found, _ = rows([[scored(1), scored(0)]], None)
    assert (found[0]["reward_model_status"], found[0]["reward"]) == ("unscored", 1.0)


def test_a_score_that_is_not_finite_is_an_error_and_an_extreme_one_is_not():
    found, metrics = rows([[scored(1), scored(0)]] * 3, [math.nan, 1e6, -1e6])
    assert [row["reward_model_status"] for row in found] == ["error", "scored", "scored"]
    assert [row["reward_model_reward"] for row in found[1:]] == pytest.approx([1.0, 0.0])
    assert found[0]["reward"] is None
    assert metrics["num_without_reward"] == 1


def test_rows_that_do_not_match_are_an_error():
    with pytest.raises(ValueError, match="do not match"):
        rows([[scored(1), scored(0)]], [0.0, 1.0])


def test_too_many_failures_name_the_source_and_the_setting():
    _, metrics = rows([[failed("x"), scored(0)]] * 2 + [[scored(1), scored(0)]] * 8, None)
    check_failures(metrics, 0.2)
    with pytest.raises(ValueError, match=r"exact_error: 2 of 10 rows.*max_failed_share"):
        check_failures(metrics, 0.19)
