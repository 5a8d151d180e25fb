"""Verifier and reward model on the same completions: their gap, their ranks, where they disagree."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.evaluation.agreement import agreement_metrics, disagreements

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # beside other work

COUNTS = {"num_agreement_rows", "num_agreement_left_out"}


def table(outcomes):
    """(group, is_correct, probability, tokens) -> completions and rewards."""
    completions, rewards = [], []
    for index, (group, correct, probability, tokens) in enumerate(outcomes):
        key = {"group_id": group, "sample_index": index}
        completions.append({**key, "completion_token_ids": [7] * tokens})
        rewards.append({**key, "is_correct": correct, "reward_model_reward": probability})
    return completions, rewards


def measure(outcomes):
    return agreement_metrics(*table(outcomes))


def test_the_numbers_are_those_worked_by_hand():
    found = measure(
        [
            ("a", True, 0.9, 4),
            ("a", False, 0.6, 3),
            ("b", True, 0.5, 2),
            ("b", False, 0.7, 1),
            ("b", None, 0.9, 9),
            ("c", True, None, 9),
        ]
    )
    assert (found["num_agreement_rows"], found["num_agreement_left_out"]) == (4, 2)
    assert found["reward_model_gap"] == pytest.approx((0.9 + 0.6 + 0.5 + 0.7) / 4 - 0.5)
    # of the pairs (0.9, 0.6) (0.9, 0.7) (0.5, 0.6) (0.5, 0.7) two are won; within groups one of a's one, none of b's one
    assert found["reward_model_auc"] == 0.5
    assert found["reward_model_auc_within_groups"] == 0.5
    # ranks 4 2 1 3 against 3.5 1.5 3.5 1.5: covariance 0
    assert found["reward_model_rank_correlation"] == pytest.approx(0.0, abs=1e-15)
    # ranks 4 2 1 3 against 4 3 2 1: 1 - 6 * (0 + 1 + 1 + 4) / (4 * 15)
    assert found["reward_model_length_correlation"] == pytest.approx(0.4)


def test_the_auc_within_groups_does_not_see_that_prompts_differ():
    """Pairs within a group leave the scores of two prompts incomparable: b's are all higher than a's."""
    found = measure([("a", True, 0.2, 1), ("a", False, 0.1, 1), ("b", True, 0.9, 1), ("b", False, 0.8, 1)])
    assert (found["reward_model_auc_within_groups"], found["reward_model_auc"]) == (1.0, 0.75)


def test_a_reward_model_that_only_measures_length_is_seen():
    found = measure([("a", index % 2 == 0, index / 10, index) for index in range(1, 9)])
    assert found["reward_model_length_correlation"] == 1.0
    assert abs(found["reward_model_rank_correlation"]) < 0.3


@pytest.mark.parametrize("outcomes", [[], [("a", None, 0.5, 1)], [("a", True, None, 1)]])
def test_nothing_that_both_scored_gives_counts_and_no_number(outcomes):
    found = measure(outcomes)
    assert set(found) == COUNTS
    assert (found["num_agreement_rows"], found["num_agreement_left_out"]) == (0, len(outcomes))


def test_a_number_that_nothing_decides_is_left_out():
    found = measure([("a", True, 0.5, 1), ("a", True, 0.5, 2)])
    assert set(found) == COUNTS | {"reward_model_gap"}
    assert found["reward_model_gap"] == -0.5


def test_groups_without_a_right_and_a_wrong_completion_leave_the_mean_within_groups_alone():
    found = measure([("a", True, 0.9, 1), ("a", False, 0.1, 1), ("b", True, 0.1, 1), ("c", False, 0.9, 1)])
    assert found["reward_model_auc_within_groups"] == 1.0
    assert found["reward_model_auc"] < 1.0


ROWS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([True, False, None]),
        st.one_of(st.none(), st.integers(0, 8).map(lambda n: n / 8)),
        st.integers(0, 5),
    ),
    max_size=15,
)


@UNHURRIED
@given(ROWS, st.randoms())
def test_the_order_of_the_rows_changes_nothing(outcomes, random):
    completions, rewards = table(outcomes)
    shuffled = random.sample(completions, len(completions)), random.sample(rewards, len(rewards))
    assert agreement_metrics(*shuffled) == agreement_metrics(completions, rewards)
    assert disagreements(shuffled[1]) == disagreements(rewards)


@UNHURRIED
@given(ROWS)
def test_a_monotone_change_of_the_scores_leaves_every_number_but_the_gap(outcomes):
    changed = [(group, correct, p if p is None else p**2 / 2, tokens) for group, correct, p, tokens in outcomes]
    before, after = measure(outcomes), measure(changed)
    for found in (before, after):
        found.pop("reward_model_gap", None)
    assert before == after


def test_the_largest_disagreement_comes_first_and_ties_go_by_id():
    _, rewards = table(
        [
            ("b", False, 0.75, 1),
            ("a", True, 0.25, 1),
            ("c", True, 0.99, 1),
            ("a", False, 0.75, 1),
            ("a", False, 0.9, 1),
            ("a", None, 0.99, 1),
            ("a", True, None, 1),
        ]
    )
    found = [(row["group_id"], row["sample_index"]) for row in disagreements(rewards)]
    assert found == [("a", 4), ("a", 1), ("a", 3), ("b", 0), ("c", 2)]


def test_a_probability_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        measure([("a", True, math.nan, 1)])
