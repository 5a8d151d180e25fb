"""What is said about a process reward model, by numbers worked out by hand."""

import pytest

from tasks.reward.step_metrics import first_wrong_step, step_metrics


def test_auc_and_accuracy_are_over_steps_whatever_completion_they_stand_in():
    # right steps (label >= 0.5): 0.9, 0.4, 0.7; wrong: 0.2, 0.6. Of the 6 pairs 5 are in order: 0.4 < 0.6 is not.
    found = step_metrics([[0.9, 0.2], [0.4, 0.6, 0.7]], [[1.0, 0.0], [0.5, 0.25, 1.0]])
    assert found["step_auc"] == pytest.approx(5 / 6)
    assert found["step_accuracy"] == pytest.approx(3 / 5)
    assert found["num_steps"] == 5
    assert found["share_right_steps"] == pytest.approx(3 / 5)


def test_a_probability_of_one_half_says_right():
    assert step_metrics([[0.5]], [[1.0]])["step_accuracy"] == 1.0
    assert step_metrics([[0.49]], [[0.5]])["step_accuracy"] == 0.0


def test_what_needs_both_kinds_is_missing_without_them_and_nothing_is_said_of_nothing():
    assert "step_auc" not in step_metrics([[0.9]], [[1.0]])
    assert "first_wrong_f1" not in step_metrics([[0.9]], [[1.0]])
    assert step_metrics([], []) == {}
    assert step_metrics([[]], [[]]) == {}


def test_the_first_wrong_step_counts_only_where_it_is_and_only_when_it_is_the_first_claimed():
    labels = [
        [1.0, 0.0, 1.0],  # claimed at 1: found
        [1.0, 0.0],  # claimed at 0, too early: not found
        [0.0, 0.0],  # claimed at 1, too late: not found
        [1.0, 0.25],  # nothing claimed: not found
        [1.0, 1.0],  # nothing claimed: right
        [0.5],  # claimed: wrong
    ]
    probabilities = [[0.9, 0.1, 0.2], [0.3, 0.1], [0.6, 0.1], [0.9, 0.5], [0.5, 0.9], [0.4]]
    found = first_wrong_step(probabilities, labels)
    assert found["first_wrong_found"] == 0.25
    assert found["no_wrong_claimed"] == 0.5
    assert found["first_wrong_f1"] == pytest.approx(2 * 0.25 * 0.5 / 0.75)


def test_f1_is_0_when_everything_is_missed_and_a_completion_without_labels_is_no_completion():
    found = first_wrong_step([[0.9], [0.1], []], [[0.0], [1.0], []])
    assert found == {"first_wrong_found": 0.0, "no_wrong_claimed": 0.0, "first_wrong_f1": 0.0}


def test_a_model_that_flags_every_first_step_finds_no_right_completion():
    found = first_wrong_step([[0.0], [0.0]], [[0.0], [1.0]])
    assert (found["first_wrong_found"], found["no_wrong_claimed"], found["first_wrong_f1"]) == (1.0, 0.0, 0.0)


def test_every_label_needs_its_probability():
    with pytest.raises(ValueError, match="1 probabilities for 2 step labels"):
        step_metrics([[0.5]], [[1.0, 0.0]])
