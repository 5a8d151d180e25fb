"""Temperature, calibration error and Brier score against numbers worked by hand."""

import math

import pytest

from tasks.reward.calibration import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    brier_score,
    calibration_of,
    expected_calibration_error,
    fit_temperature,
    is_fitted_on,
    negative_log_likelihood,
    sigmoid,
)


def test_a_model_that_is_twice_too_sure_gets_the_temperature_two():
    # Three of four with log-odds 2 ln 3 are right: the truth is ln 3, so the log-odds are to be halved.
    logits, targets = [2 * math.log(3)] * 4, [1.0, 1.0, 1.0, 0.0]
    assert fit_temperature(logits, targets) == pytest.approx(2.0, rel=1e-12)


def test_shares_are_fitted_as_labels_that_are_right_that_often():
    assert fit_temperature([math.log(3) / 2, -math.log(3) / 2], [0.75, 0.25]) == pytest.approx(0.5, rel=1e-12)


def test_both_orders_of_a_pair_give_the_temperature_of_one():
    margins = [3.0, 1.0, -0.5, 2.0, -1.5]
    once = fit_temperature(margins, [1.0] * 5)
    twice = fit_temperature(margins + [-margin for margin in margins], [1.0] * 5 + [0.0] * 5)
    assert once == pytest.approx(twice, rel=1e-12)


def test_the_fitted_temperature_is_the_least_of_the_likelihood():
    logits, targets = [3.0, 1.0, -0.5, 2.0, -1.5, 4.0], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    best = fit_temperature(logits, targets)
    at = lambda t: calibration_of(logits, targets, t)["nll"]  # noqa: E731
    assert at(best) < min(at(best * 1.01), at(best * 0.99), at(1.0))


@pytest.mark.parametrize(
    ("logits", "targets", "temperature"),
    [
        ([1.0, -2.0], [1.0, 0.0], MIN_TEMPERATURE),
        ([1.0, -2.0], [0.0, 1.0], MAX_TEMPERATURE),
        ([0.0, 0.0], [1.0, 0.0], 1.0),
        ([], [], 1.0),
        ([1000.0, -1000.0, 1000.0], [1.0, 0.0, 0.0], MAX_TEMPERATURE),
    ],
)
def test_labels_that_no_temperature_fits_end_at_a_bound(logits, targets, temperature):
    assert fit_temperature(logits, targets) == temperature


def test_logits_without_targets_are_refused():
    with pytest.raises(ValueError, match="1 logits and 0 targets"):
        fit_temperature([1.0], [])


def test_calibration_error_by_hand():
    # Bin 10 of 15, (0.6, 0.667]: mean probability 0.65, half of it right. Bin 2, (0.067, 0.133]: 0.1, never right.
    probabilities, targets = [0.64, 0.66, 0.1, 0.1], [1.0, 0.0, 0.0, 0.0]
    assert expected_calibration_error(probabilities, targets) == pytest.approx(0.5 * 0.15 + 0.5 * 0.1)


@pytest.mark.parametrize(
    ("probabilities", "targets", "error"),
    [
        ([0.2, 0.2000001], [1.0, 0.0], (0.8 + 0.2000001) / 2),  # 0.2 = 3/15 closes its bin
        ([0.14, 0.2], [1.0, 0.0], 0.66 / 2),  # both in (2/15, 3/15]
        ([0.0, 0.05], [1.0, 0.0], 0.95 / 2),  # 0 belongs to the first bin
        ([1.0, 0.95], [1.0, 1.0], 0.025),  # 1 to the last
        ([0.6, 0.61], [1.0, 0.0], (0.4 + 0.61) / 2),  # 0.6 * 15 is 9.0, its own bin's end
    ],
)
def test_the_edges_of_the_bins(probabilities, targets, error):
    assert expected_calibration_error(probabilities, targets) == pytest.approx(error)


def test_a_bin_is_a_fifteenth_wide():
    # 1/15 and 2/15 - epsilon share no bin with 2/15 + epsilon.
    assert expected_calibration_error([0.13, 0.134], [1.0, 0.0]) == pytest.approx((0.87 + 0.134) / 2)
    assert expected_calibration_error([0.134, 0.19], [1.0, 0.0]) == pytest.approx((0.866 - 0.19) / 2)


def test_a_probability_outside_is_refused():
    with pytest.raises(ValueError, match=r"1\.5 lies outside"):
        expected_calibration_error([1.5], [1.0])


def test_brier_score_and_likelihood_by_hand():
    assert brier_score([0.5, 1.0, 0.0], [1.0, 1.0, 1.0]) == pytest.approx((0.25 + 0 + 1) / 3)
    assert negative_log_likelihood([0.0, math.log(3)], [1.0, 0.0]) == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert negative_log_likelihood([-1000.0, 1000.0], [1.0, 1.0]) == 500.0


def test_the_temperature_divides_the_log_odds():
    found = calibration_of([2 * math.log(3)], [1.0], 2.0)
    assert found == {"nll": pytest.approx(-math.log(0.75)), "ece": pytest.approx(0.25), "brier": pytest.approx(0.0625)}
    assert calibration_of([], [], 2.0) == {}


@pytest.mark.parametrize(("logit", "probability"), [(0.0, 0.5), (math.log(3), 0.75), (-2000.0, 0.0), (2000.0, 1.0)])
def test_the_sigmoid_never_overflows(logit, probability):
    assert sigmoid(logit) == pytest.approx(probability)


def test_half_of_the_prompts_fit_and_the_same_ones_always():
    chosen = [is_fitted_on(f"prompt {index}") for index in range(1000)]
    assert 450 < sum(chosen) < 550
    assert [index for index in range(8) if is_fitted_on(f"prompt {index}")] == [
        0,
        2,
        4,
        6,
        7,
    ]  # sha256, in every process
