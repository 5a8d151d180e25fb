"""One retraining as a whole: what it measures, calibrates and refuses."""

import pytest
import torch

from tasks.policy.characters import build_tokenizer
from tasks.reward import retraining
from tasks.reward.calibration import is_fitted_on
from tasks.reward.config import PairsConfig, RewardModelConfig
from tasks.reward.examples import Judged
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import LABELS
from tasks.reward.measures import accuracy_by_prompt, agreement, judge_rows, length_correlations
from tasks.reward.trainer import RewardTrainer
from tasks.runtime.optimiser import NonFinite
from tests.conftest import make_llama

PAIR = LABELS[PairsConfig]


def config(**changes):
    training = {"optimiser": {"learning_rate": 1e-2}, "batch_labels": 8, "num_epochs": 4}
    return RewardModelConfig.model_validate(
        {"num_initial_prompts": 1, "training": training, "calibration": {"min_labels": 5}, **changes}
    )


def pairs(num, *, first=0, swapped=False, replayed=False):
    """Completions that end in 9 are better than those that end in 10, one pair per prompt."""
    sides = ([9, 2], [10, 11, 2])
    better, worse = sides[::-1] if swapped else sides
    return [
        {
            "label_id": f"label {index}",
            "prompt_key": f"prompt {index}",
            "prompt_token_ids": [1, 4 + index % 5],
            "chosen_token_ids": [5 + index % 4, *better],
            "rejected_token_ids": [5 + index % 4, *worse],
            "is_replayed": replayed,
        }
        for index in range(first, first + num)
    ]


def silent(done, total):
    return None


@pytest.fixture
def trainer(tmp_path):
    make_llama().save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    return RewardTrainer(RewardModel.from_policy(tmp_path, device="cpu", seed=0), config().training, PAIR)


def founded(trainer):
    return retraining.found(trainer, pairs(40), pairs(20, first=100), config(), seed=0, on_progress=silent)


def retrained(trainer, training, settings=None, heldout=()):
    return retraining.retrain(
        trainer, training, heldout, pairs(20, first=100), settings or config(), seed=1, on_progress=silent
    )


def test_the_first_model_is_calibrated_on_the_anchor_set(trainer):
    metrics = founded(trainer)
    assert metrics["anchor_accuracy_after"] == 1.0
    fitting = sum(is_fitted_on(f"prompt {index}") for index in range(100, 120))
    assert (metrics["num_temperature_labels"], metrics["num_calibration_labels"]) == (fitting, 20 - fitting)
    assert metrics["temperature"] == trainer.model.temperature < 1.0  # all right: the model may be surer
    assert metrics["calibration_ece"] < metrics["calibration_ece_raw"]
    assert metrics["calibration_nll"] < metrics["calibration_nll_raw"]
    assert metrics["calibration_brier"] < metrics["calibration_brier_raw"]


def test_a_retraining_reports_new_replayed_anchor_and_held_out_rows_before_and_after(trainer):
    founded(trainer)
    training = pairs(10, first=200) + pairs(3, replayed=True)
    metrics = retrained(trainer, training, heldout=pairs(12, first=300))
    for name, num in {"fresh": 10, "replayed": 3, "anchor": 20, "heldout": 12}.items():
        for when in ("before", "after"):
            assert metrics[f"{name}_num_labels_{when}"] == num
            assert metrics[f"{name}_accuracy_{when}"] == metrics[f"{name}_auc_{when}"] == 1.0
    assert (metrics["num_fresh"], metrics["num_replayed"], metrics["is_refused"]) == (10, 3, 0.0)


def test_new_rows_are_measured_before_they_are_trained_on(trainer):
    founded(trainer)
    metrics = retrained(trainer, pairs(60, first=200, swapped=True), config())
    assert metrics["fresh_accuracy_before"] == 0.0
    assert metrics["fresh_accuracy_after"] > 0.9


def test_a_model_that_forgot_the_anchor_set_is_refused_with_its_evidence(trainer):
    founded(trainer)
    metrics = retrained(trainer, pairs(60, first=200, swapped=True))
    assert metrics["anchor_accuracy_before"] == 1.0
    assert metrics["anchor_accuracy_after"] < 0.5
    assert metrics["is_refused"] == 1.0
    assert metrics["anchor_high"] < -0.05
    assert metrics["anchor_difference"] == pytest.approx(
        metrics["anchor_accuracy_after"] - metrics["anchor_accuracy_before"]
    )


def test_the_margin_decides(trainer):
    founded(trainer)
    metrics = retrained(trainer, pairs(60, first=200, swapped=True), config(anchor={"margin": 0.99}))
    assert metrics["anchor_difference"] < -0.5
    assert metrics["is_refused"] == float(metrics["anchor_high"] < -0.99)


def test_without_new_rows_nothing_is_trained_and_nothing_refused(trainer):
    founded(trainer)
    metrics = retrained(trainer, [])
    assert (metrics["anchor_difference"], metrics["is_refused"]) == (0.0, 0.0)
    assert "loss" not in metrics
    assert "fresh_accuracy_before" not in metrics


def test_too_few_held_out_labels_leave_the_temperature_as_it_is(trainer):
    founded(trainer)
    trainer.model.temperature = 3.0
    metrics = retrained(trainer, [], config(calibration={"min_labels": 30}), heldout=pairs(40, first=300))
    assert (metrics["temperature"], metrics["num_temperature_labels"]) == (3.0, 0.0)
    assert metrics["calibration_nll"] != metrics["calibration_nll_raw"]


def test_the_temperature_is_fitted_on_one_half_of_the_prompts_only(trainer):
    founded(trainer)
    heldout = pairs(40, first=300)
    half = [row for row in heldout if is_fitted_on(row["prompt_key"])]
    other = [
        {**row, "chosen_token_ids": row["rejected_token_ids"], "rejected_token_ids": row["chosen_token_ids"]}
        for row in heldout
        if not is_fitted_on(row["prompt_key"])
    ]
    whole = retrained(trainer, [], heldout=heldout)["temperature"]
    assert retrained(trainer, [], heldout=[*half, *other])["temperature"] == whole
    assert retrained(trainer, [], heldout=half)["num_calibration_labels"] == 0


def test_the_length_of_the_better_side_shows_in_the_score_and_in_the_label(trainer):
    founded(trainer)
    metrics = retrained(trainer, [], heldout=pairs(20, first=300))
    assert metrics["heldout_label_length_correlation_before"] == pytest.approx(-1.0)
    assert metrics["heldout_length_correlation_after"] == metrics["heldout_length_correlation_before"] < -0.5


def judged(logits, targets, scores=(), labels=(), lengths=()):
    return Judged(tuple(logits), tuple(targets), tuple(scores), tuple(labels), tuple(lengths))


def test_agreement_by_hand():
    found = agreement(
        [
            judged([2.0], [1.0], [2.0], [1.0]),
            judged([-1.0], [1.0], [-1.0], [1.0]),
            judged([0.0], [0.0], [0.0], [0.0]),
            judged([-3.0], [0.0], [-3.0], [0.0]),
        ]
    )
    assert found == {"accuracy": (1 + 0 + 0.5 + 1) / 4, "auc": 0.75, "num_labels": 4}
    assert "auc" not in agreement([judged([1.0], [1.0], [1.0], [1.0])])


def test_length_correlations_by_hand():
    # Scores 1, 2, 3 and lengths 5, 5, 9: ranks 1, 2, 3 and 1.5, 1.5, 3, whose correlation is 1.5 / sqrt(2 * 1.5).
    found = length_correlations([judged([], [], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [5, 5, 9])])
    assert found == {"length_correlation": pytest.approx(1.5 / 3**0.5)}


def test_accuracy_by_prompt_is_the_share_of_its_outcomes():
    row = lambda key: {"prompt_key": key}  # noqa: E731
    found = accuracy_by_prompt(
        [(row("a"), judged([1.0], [1.0])), (row("a"), judged([-1.0], [1.0])), (row("b"), judged([0.0], [1.0]))]
    )
    assert found == {"a": 0.5, "b": 0.5}


def test_a_length_only_scorer_is_seen():
    """A score that is the length has correlation 1 with it although the labels have none."""
    lengths, labels = [3, 7, 5, 9], [1.0, 1.0, 0.0, 0.0]
    found = length_correlations([judged([], [], [float(each) for each in lengths], labels, lengths)])
    assert found["length_correlation"] == 1.0
    assert abs(found["label_length_correlation"]) < 0.5


def test_a_pair_whose_sides_the_cut_made_equal_is_not_judged(trainer):
    assert judge_rows(trainer.model, pairs(1), PAIR, micro_batch_tokens=99, max_tokens=3) == []


def test_one_score_of_a_pair_that_is_no_number_stops_the_measuring(trainer):
    with torch.no_grad():
        trainer.model.backbone.embed_tokens.weight[11] = float("nan")  # an id of the rejected side alone
    with pytest.raises(NonFinite, match=r"label label 0 has the scores -?\d+\.\d+, nan"):
        judge_rows(trainer.model, pairs(1), PAIR, micro_batch_tokens=99, max_tokens=50)
