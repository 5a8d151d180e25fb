"""The over-optimisation alarm: raised by the rule and only by it, and what it says."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.evaluation.alarm import Point, best_of, judge
from tasks.evaluation.config import AlarmConfig, EvaluationConfig

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # beside other work

PROXY = [0.40, 0.50, 0.60, 0.70, 0.80]
TRUTH = [0.30, 0.36, 0.40, 0.37, 0.33]


def points(accuracy, model):
    return [Point(index, a, m) for index, (a, m) in enumerate(zip(accuracy, model, strict=True))]


def after(iteration, patience=2):
    """The judgement on the worked example after an iteration."""
    return judge(points(TRUTH, PROXY)[: iteration + 1], AlarmConfig(patience=patience))


def raised(accuracy, model, patience=2):
    return judge(points(accuracy, model), AlarmConfig(patience=patience)).raised_at


def test_the_proxy_rises_the_truth_falls_twice_and_the_best_iteration_is_offered():
    assert [after(iteration).raised_at for iteration in range(5)] == [None, None, None, None, 4]
    assert [after(iteration).best_iteration for iteration in range(5)] == [0, 1, 2, 2, 2]
    assert [after(iteration).num_diverging for iteration in range(5)] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize(("patience", "expected"), [(1, [3, 3]), (2, [None, 4]), (3, [None, None])])
def test_patience_is_the_number_of_falls_in_a_row(patience, expected):
    assert [after(iteration, patience).raised_at for iteration in (3, 4)] == expected


def test_the_evidence_names_the_numbers_the_offer_and_the_cure():
    text = after(4).evidence
    assert "raised at iteration 4" in text
    assert "0.400 > 0.370 > 0.330" in text
    assert "0.600 < 0.700 < 0.800" in text
    assert "the policy of iteration 2 (accuracy 0.400) is offered as champion" in text
    assert "--disagree" in text
    assert "update.kl.beta" in text
    assert after(3).evidence == ""


@pytest.mark.parametrize(
    ("accuracy", "model"),
    [
        ([0.5, 0.4, 0.3], [0.5, 0.6, 0.6]),  # the proxy did not rise the second time
        ([0.5, 0.4, 0.3], [0.5, 0.6, 0.5]),
        ([0.5, 0.4, 0.3], [0.5, 0.5, 0.6]),
        ([0.5, 0.4, 0.4], [0.5, 0.6, 0.7]),  # accuracy did not fall the second time
        ([0.5, 0.4, 0.45, 0.4], [0.5, 0.6, 0.7, 0.8]),  # two falls, not in a row
        ([0.5, 0.6, 0.7], [0.5, 0.6, 0.7]),
        ([0.5, 0.4, 0.4 - 1e-12], [0.5, 0.6, 0.7]),  # binary noise is no fall
        ([0.5, 0.4, 0.3], [0.5, 0.6, 0.6 + 1e-12]),
        ([0.5], [0.5]),
        ([], []),
    ],
)
def test_anything_less_raises_nothing(accuracy, model):
    assert raised(accuracy, model) is None


def test_it_stands_until_accuracy_rises():
    accuracy, model = [0.5, 0.4, 0.3, 0.3, 0.2, 0.25, 0.2], [0.5, 0.6, 0.7, 0.8, 0.7, 0.8, 0.9]
    state = [raised(accuracy[:count], model[:count]) for count in range(1, 8)]
    assert state == [None, None, 2, 2, 2, None, None]


def test_it_is_raised_anew_after_it_was_lowered():
    accuracy, model = [0.5, 0.4, 0.3, 0.35, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert [raised(accuracy[:count], model[:count]) for count in range(3, 7)] == [2, None, None, 5]


def test_an_iteration_without_both_numbers_is_left_out_and_counted():
    found = judge(
        [Point(0, 0.5, 0.1), Point(1, None, 0.2), Point(2, 0.4, 0.3), Point(3, 0.9, None), Point(4, 0.3, 0.4)],
        AlarmConfig(),
    )
    assert (found.raised_at, found.num_left_out, found.num_diverging) == (4, 2, 2)
    assert found.best_iteration == 3  # its accuracy is known
    assert "0.500 > 0.400 > 0.300" in found.evidence


def test_the_best_iteration_is_the_earliest_of_equals():
    assert best_of(points([0.3, 0.5, 0.5, 0.5 + 1e-12], [0, 0, 0, 0])).iteration == 1
    assert best_of([Point(0, None, 0.5)]) is None
    assert judge([Point(0, None, 0.5)], AlarmConfig()).best_iteration is None


@UNHURRIED
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12), st.integers(1, 3))
def test_what_stands_was_raised_by_the_rule_and_no_accuracy_rose_since(pairs, patience):
    accuracy, model = [a / 4 for a, _ in pairs], [m / 4 for _, m in pairs]
    at = raised(accuracy, model, patience)
    if at is not None:
        assert all(accuracy[j] < accuracy[j - 1] for j in range(at - patience + 1, at + 1))
        assert all(model[j] > model[j - 1] for j in range(at - patience + 1, at + 1))
        assert all(accuracy[j] <= accuracy[j - 1] for j in range(at, len(pairs)))
        assert best_of(points(accuracy, model)).iteration < at


def test_the_default_is_not_recorded_and_another_patience_is():
    assert "alarm" not in EvaluationConfig().model_dump(mode="json")
    assert "alarm" not in EvaluationConfig.model_validate({"alarm": {"patience": 2}}).model_dump(mode="json")
    other = EvaluationConfig.model_validate({"alarm": {"patience": 3}})
    assert other.model_dump(mode="json")["alarm"] == {"patience": 3}
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        EvaluationConfig.model_validate({"alarm": {"patience": 0}})
