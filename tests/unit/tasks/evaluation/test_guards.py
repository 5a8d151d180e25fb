"""Guards: bounds, what passes them, and which action is taken."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.evaluation.guards import breaches, evaluation_measures, gravest
from tasks.evaluation.guards_config import Guard, GuardsConfig


def found(measured, where="step 3", **guards):
    return breaches(measured, GuardsConfig.model_validate(guards), where)


@pytest.mark.parametrize(
    ("value", "is_passed"), [(0.1, False), (0.5, False), (0.5000001, True), (9.0, True), (math.inf, True)]
)
def test_a_bound_itself_is_still_allowed(value, is_passed):
    assert bool(found({"kl": value}, kl={"max": 0.5})) == is_passed


@pytest.mark.parametrize(("value", "is_passed"), [(0.1, False), (0.05, False), (0.0499, True), (-math.inf, True)])
def test_a_floor_works_the_other_way(value, is_passed):
    assert bool(found({"entropy": value}, entropy={"min": 0.05})) == is_passed


def test_nan_keeps_no_bound():
    assert [breach.is_above for breach in found({"kl": math.nan}, kl={"max": 0.5, "min": 0.0})] == [True]
    assert [breach.is_above for breach in found({"kl": math.nan}, kl={"min": 0.0})] == [False]


def test_what_was_not_measured_passes_no_bound():
    assert found({"kl": None}, kl={"max": 0.0}, entropy={"min": 1.0}) == ()


def test_the_evidence_names_measure_value_place_bound_and_setting():
    (breach,) = found({"kl": 0.75}, kl={"max": 0.5, "action": "stop"})
    assert breach.evidence == "guard kl (stop): 0.75 at step 3 is above guards.kl.max 0.5"
    (breach,) = found({"entropy": 0.25}, entropy={"min": 0.5})
    assert breach.evidence == "guard entropy (warn): 0.25 at step 3 is below guards.entropy.min 0.5"


@pytest.mark.parametrize(
    ("actions", "expected"),
    [((), None), (("warn",), "warn"), (("rollback", "warn"), "rollback"), (("warn", "stop", "rollback"), "stop")],
)
def test_the_gravest_action_is_taken(actions, expected):
    names = ("kl", "entropy", "grad_norm")
    guards = {name: {"max": 0.0, "action": action} for name, action in zip(names, actions, strict=False)}
    assert gravest(found(dict.fromkeys(names, 1.0), **guards)) == expected


def test_an_iterations_measures_are_the_gap_and_the_accuracy_that_was_lost():
    measured = evaluation_measures({"accuracy": 0.5, "reward_model_gap": 0.25}, 0.75)
    assert measured == {"reward_model_gap": 0.25, "accuracy_drop": 0.25}
    assert evaluation_measures({"accuracy": 0.5}, None) == {"reward_model_gap": None, "accuracy_drop": None}
    assert evaluation_measures({}, 0.5)["accuracy_drop"] is None


@pytest.mark.parametrize(
    ("guard", "said"),
    [({}, "give max or min"), ({"max": 0.1, "min": 0.2}, "above max"), ({"max": math.nan}, "finite"),
     ({"max": 1, "action": "pause"}, "warn"), ({"above": 1}, "above")],
)  # fmt: skip
def test_a_guard_that_can_not_work_is_refused(guard, said):
    with pytest.raises(ValidationError, match=said):
        GuardsConfig.model_validate({"kl": guard})


@given(st.floats(allow_nan=False), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_value_is_let_through_exactly_between_the_bounds(value, one, other):
    low, high = sorted((one, other))
    config = GuardsConfig(kl=Guard(min=low, max=high))
    assert (breaches({"kl": value}, config, "") == ()) == (low <= value <= high)
