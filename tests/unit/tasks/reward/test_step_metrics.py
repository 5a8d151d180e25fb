"""Whether the first wrong step is found, by numbers worked out by hand."""

import pytest

from tasks.reward.examples import Judged
from tasks.reward.step_metrics import first_wrong_step


def measured(*completions):
    """Of (log-odds, labels) per completion."""
    return first_wrong_step(
        [Judged(tuple(logits), tuple(labels), (), (), ()) for logits, labels in completions],
    )


def test_the_first_wrong_step_counts_only_where_it_is_and_only_when_it_is_the_first_claimed():
    found = measured(
        ([2.0, -1.0, -3.0], [1.0, 0.0, 1.0]),  # claimed at 1: found
        ([-0.5, -2.0], [1.0, 0.0]),  # claimed at 0, too early: not found
        ([0.5, -2.0], [0.0, 0.0]),  # claimed at 1, too late: not found
        ([3.0, 0.1], [1.0, 0.25]),  # nothing claimed: not found
        ([0.1, 2.0], [1.0, 0.75]),  # nothing claimed: right
        ([-0.1], [1.0]),  # claimed where nothing is wrong
    )
    assert found["first_wrong_found"] == 0.25
    assert found["no_wrong_claimed"] == 0.5
    assert found["first_wrong_f1"] == pytest.approx(2 * 0.25 * 0.5 / 0.75)


def test_a_half_is_no_yes_in_labels_and_in_probabilities():
    assert measured(([0.0], [0.5])) == {"first_wrong_found": 1.0}
    assert measured(([0.0], [1.0])) == {"no_wrong_claimed": 0.0}
    assert measured(([1e-9], [0.5])) == {"first_wrong_found": 0.0}


def test_a_share_is_missing_without_completions_of_its_kind():
    assert measured(([1.0], [1.0])) == {"no_wrong_claimed": 1.0}
    assert measured(([-1.0], [0.0])) == {"first_wrong_found": 1.0}
    assert measured() == {}


def test_f1_is_0_when_everything_is_missed():
    found = measured(([1.0], [0.0]), ([-1.0], [1.0]))
    assert found == {"first_wrong_found": 0.0, "no_wrong_claimed": 0.0, "first_wrong_f1": 0.0}


def test_a_model_that_flags_every_first_step_finds_no_right_completion():
    found = measured(([-9.0], [0.0]), ([-9.0], [1.0]))
    assert (found["first_wrong_found"], found["no_wrong_claimed"], found["first_wrong_f1"]) == (1.0, 0.0, 0.0)
