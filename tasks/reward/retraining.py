"""One training of the reward model, first or again: trained, measured before and after, calibrated, compared."""

from collections.abc import Sequence

from tasks.reward.anchor import compare
from tasks.reward.calibration import calibration_of, fit_temperature, is_fitted_on
from tasks.reward.config import CalibrationConfig, RewardModelConfig
from tasks.reward.examples import Judged
from tasks.reward.head import RewardModel
from tasks.reward.measures import Row, accuracy_by_prompt, agreement, judge_rows, length_correlations
from tasks.reward.trainer import RewardTrainer
from tasks.runtime.progress import OnProgress
from tasks.values.seeds import derive_seed

JudgedRows = Sequence[tuple[Row, Judged]]


def found(
    trainer: RewardTrainer,
    training: Sequence[Row],
    anchor: Sequence[Row],
    config: RewardModelConfig,
    *,
    seed: int,
    on_progress: OnProgress,
) -> dict[str, float]:
    """Train the first reward model on the initial labels; the anchor set calibrates it, for no other labels are held out yet.

    Metrics: those of the training, of the calibration, and anchor_accuracy_after, anchor_auc_after, ...
    """
    metrics = trainer.train(training, seed=seed, on_progress=on_progress)
    judged = _judge(trainer, anchor)
    return metrics | _named("anchor", judged, "after") | calibrate(trainer.model, judged, config.calibration)


def retrain(
    trainer: RewardTrainer,
    training: Sequence[Row],
    heldout: Sequence[Row],
    anchor: Sequence[Row],
    config: RewardModelConfig,
    *,
    seed: int,
    on_progress: OnProgress,
) -> dict[str, float]:
    """Train on fresh and replayed labels, going on from the last good model, which the anchor set compares the result with.

    Args:
        training: rows with ``is_replayed``.
        heldout: labels of held-out prompts; half of the prompts fit the temperature, the others measure it.
        anchor: the oldest labels, never trained on.

    Metrics: those of the training and the calibration; accuracy, auc and num_labels of the ``heldout``, ``fresh``,
    ``replayed`` and ``anchor`` rows, each ``_before`` and ``_after``; of the held-out ones the length correlations, and what
    else its kind of label measures; anchor_difference with its interval (anchor_low, anchor_high) and is_refused (1 or 0),
    with too few anchor prompts 0 alone.
    """
    sets = {
        "heldout": heldout,
        "fresh": [row for row in training if not row["is_replayed"]],
        "replayed": [row for row in training if row["is_replayed"]],
        "anchor": anchor,
    }
    before = {name: _judge(trainer, rows) for name, rows in sets.items()}
    metrics = trainer.train(training, seed=seed, on_progress=on_progress)
    after = {name: _judge(trainer, rows) for name, rows in sets.items()}
    for name in sets:
        metrics |= _named(name, before[name], "before") | _named(name, after[name], "after")
    metrics |= _lengths(before["heldout"], "before") | _lengths(after["heldout"], "after")
    metrics |= _special(trainer, before["heldout"], "before") | _special(trainer, after["heldout"], "after")
    metrics |= calibrate(trainer.model, after["heldout"], config.calibration)
    decision = compare(
        accuracy_by_prompt(before["anchor"]),
        accuracy_by_prompt(after["anchor"]),
        config.anchor,
        seed=derive_seed(seed, "anchor"),
    )
    if decision is None:
        return metrics | {"is_refused": 0.0}
    return metrics | {
        "is_refused": float(decision.is_refused),
        "anchor_difference": decision.difference,
        "anchor_low": decision.low,
        "anchor_high": decision.high,
    }


def calibrate(model: RewardModel, judged: JudgedRows, config: CalibrationConfig) -> dict[str, float]:
    """Fit ``model.temperature`` on half of the prompts and measure it on the others, without (``_raw``) and with it.

    With fewer than ``config.min_labels`` labels to fit on, the temperature stays as it is and num_temperature_labels is 0.
    """
    fitting = [each for row, each in judged if is_fitted_on(row["prompt_key"])]
    measuring = [each for row, each in judged if not is_fitted_on(row["prompt_key"])]
    is_enough = len(fitting) >= config.min_labels
    if is_enough:
        model.temperature = fit_temperature(*_outcomes(fitting))
    metrics = {
        "temperature": model.temperature,
        "num_temperature_labels": float(len(fitting) if is_enough else 0),
        "num_calibration_labels": float(len(measuring)),
    }
    logits, targets = _outcomes(measuring)
    metrics |= {f"calibration_{name}_raw": value for name, value in calibration_of(logits, targets, 1.0).items()}
    calibrated = calibration_of(logits, targets, model.temperature)
    return metrics | {f"calibration_{name}": value for name, value in calibrated.items()}


def _judge(trainer: RewardTrainer, rows: Sequence[Row]) -> JudgedRows:
    config = trainer.config
    return judge_rows(
        trainer.model,
        rows,
        trainer.kind,
        micro_batch_tokens=config.micro_batch_tokens,
        max_tokens=config.max_tokens,
    )


def _named(name: str, judged: JudgedRows, when: str) -> dict[str, float]:
    return {f"{name}_{measure}_{when}": value for measure, value in agreement([each for _, each in judged]).items()}


def _lengths(judged: JudgedRows, when: str) -> dict[str, float]:
    found = length_correlations([each for _, each in judged])
    return {f"heldout_{measure}_{when}": value for measure, value in found.items()}


def _special(trainer: RewardTrainer, judged: JudgedRows, when: str) -> dict[str, float]:
    found = trainer.kind.measure([each for _, each in judged])
    return {f"heldout_{measure}_{when}": value for measure, value in found.items()}


def _outcomes(judged: Sequence[Judged]) -> tuple[list[float], list[float]]:
    return [logit for each in judged for logit in each.logits], [target for each in judged for target in each.targets]
