"""What the report of an iteration says: numbers as text, completions chosen; nothing is escaped yet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluation.agreement import disagreement, disagreements
from tasks.reporting.chart import Chart, chart_of
from tasks.reporting.samples import Sample, contrasts, sample_of, with_texts
from tasks.reporting.steps import Stages, iteration_row, step_rows

Row = Mapping[str, Any]
Metrics = Mapping[str, float]

NUM_CONTRASTS = 4
NUM_DISAGREEMENTS = 8
MISSING = "–"
MOMENTS = ("_before", "_after")
"""How the measures of a retraining end, by when they were taken."""

FORMS = {"step": ".0f", "kl": ".4f", "mean_tokens": ".1f", "num_agreement_left_out": ".0f", "reward_model_gap": "+.3f"}
TRAINING = (
    ("reward_mean", "reward", "mean of the training completions"),
    ("kl", "KL", "nats per token to the reference"),
    ("entropy", "entropy", "nats per token"),
    ("mean_tokens", "length", "tokens per completion"),
    ("no_signal_share", "no signal", "share of groups whose rewards are equal"),
    ("truncated_share", "truncated", "share of completions"),
)
HELD_OUT = (
    ("accuracy", "accuracy", "held-out, sampled"),
    ("greedy_accuracy", "greedy accuracy", "held-out"),
    ("reward_model_mean", "reward model's mean", "over the same held-out completions"),
)
AGREEMENT = (
    ("reward_model_gap", "gap", "reward model's mean less accuracy"),
    ("reward_model_rank_correlation", "rank correlation", "Spearman: probability and correctness"),
    ("reward_model_auc", "AUC", "a right completion scores above a wrong one"),
    ("reward_model_auc_within_groups", "AUC within prompts", "the same among completions of one prompt"),
    ("reward_model_length_correlation", "length correlation", "Spearman: probability and tokens"),
    ("num_agreement_left_out", "left out", "completions that only one of the two scored"),
)


@dataclass(frozen=True)
class Figure:
    """One number with its name and a short explanation; ``value`` is a dash where nothing was measured."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Tables:
    """The held-out evaluation's rows: prompts with their answers, completions, rewards; joined by group id and index."""

    selection: Sequence[Row]
    completions: Sequence[Row]
    rewards: Sequence[Row]


@dataclass(frozen=True)
class Contents:
    """Everything that the page shows, in the order in which it shows it."""

    lineage: str
    iteration: int
    facts: tuple[Figure, ...]
    alarm: str
    guards: tuple[str, ...]
    """The evidence of every guard that was passed."""
    promotion: str
    headline: tuple[Figure, ...]
    agreement: tuple[Figure, ...]
    chart: Chart | None
    history: tuple[Row, ...]
    steps: tuple[Row, ...]
    retraining: tuple[Row, ...]
    reward_model: tuple[Figure, ...]
    contrasts: tuple[tuple[Sample, Sample], ...]
    disagreements: tuple[Sample, ...]
    everything: tuple[Figure, ...]


def contents_of(lineage: str, records: Sequence[Row], stages: Stages, tables: Tables) -> Contents:
    """The report of the last of ``records``.

    Args:
        records: the lineage's iteration records as plain values, from iteration 0 on.
        stages: what the stages of that last iteration measured.
    """
    record = records[-1]
    metrics: Metrics = record["metrics"]
    evaluated = {name.removeprefix("evaluation/"): value for name, value in metrics.items()}
    joined = with_texts(tables.rewards, tables.completions, tables.selection)
    trained = {
        name.removeprefix("reward_model/"): value for name, value in metrics.items() if name.startswith("reward_model/")
    }
    return Contents(
        lineage=lineage,
        iteration=record["iteration"],
        facts=_facts(records),
        alarm=record["alarm"],
        guards=tuple(record["guards"]),
        promotion=record["promotion"],
        headline=_named(HELD_OUT, evaluated) + _named(TRAINING, iteration_row(stages)),
        agreement=_named(AGREEMENT, evaluated),
        chart=chart_of(
            [each["iteration"] for each in records],
            [
                ("accuracy", [each["metrics"].get("evaluation/accuracy") for each in records]),
                ("reward model's mean", [each["metrics"].get("evaluation/reward_model_mean") for each in records]),
            ],
            [bool(each["alarm"]) for each in records],
        ),
        history=tuple(_history_row(each) for each in records),
        steps=tuple({name: number(value, _form(name)) for name, value in row.items()} for row in step_rows(stages)),
        retraining=tuple(_before_and_after(trained)),
        reward_model=_figures("", {name: trained[name] for name in trained if not name.endswith(MOMENTS)}),
        contrasts=contrasts(joined, NUM_CONTRASTS),
        disagreements=tuple(
            sample_of(row, f"apart by {disagreement(row):.3f}") for row in disagreements(joined)[:NUM_DISAGREEMENTS]
        ),
        everything=_figures("", metrics),
    )


def number(value: float | None, form: str) -> str:
    """A measured number, a dash for one that was not measured."""
    return MISSING if value is None else format(value, form)


def _form(name: str) -> str:
    return FORMS.get(name, ".3f")


def _named(names: Sequence[tuple[str, str, str]], values: Mapping[str, float | None]) -> tuple[Figure, ...]:
    return tuple(Figure(shown, number(values.get(name), _form(name)), note) for name, shown, note in names)


def _figures(prefix: str, metrics: Metrics) -> tuple[Figure, ...]:
    return tuple(
        Figure(name.removeprefix(prefix), number(value, ".5g"))
        for name, value in sorted(metrics.items())
        if name.startswith(prefix)
    )


def _before_and_after(metrics: Metrics) -> Iterator[Row]:
    """What was measured on either side of the retraining, a row each."""
    for measure in sorted({name.rpartition("_")[0] for name in metrics if name.endswith(MOMENTS)}):
        before, after = (number(metrics.get(measure + moment), ".4g") for moment in MOMENTS)
        yield {"measure": measure, "before": before, "after": after}


def _facts(records: Sequence[Row]) -> tuple[Figure, ...]:
    """Versions: which policy this is, which reward model scored it (the one of the record before), who is champion."""
    record = records[-1]
    scored_by = records[-2] if len(records) > 1 else record
    best = record["best_iteration"]
    return (
        Figure("policy", f"v{record['policy']['version']}"),
        Figure("scored by reward model", f"v{scored_by['reward']['version']}"),
        Figure("champion", f"v{record['champion']['version']}"),
        Figure("best iteration so far", MISSING if best is None else str(best)),
        Figure("outcome", record["outcome"].replace("_", " ")),
    )


def _history_row(record: Row) -> Row:
    value = record["metrics"].get
    return {
        "iteration": record["iteration"],
        "is_alarm": bool(record["alarm"]),
        "policy": f"v{record['policy']['version']}",
        "champion": f"v{record['champion']['version']}",
        "reward": number(value("reward_mean"), ".3f"),
        "accuracy": number(value("evaluation/accuracy"), ".3f"),
        "reward_model_mean": number(value("evaluation/reward_model_mean"), ".3f"),
        "gap": number(value("evaluation/reward_model_gap"), "+.3f"),
        "rank_correlation": number(value("evaluation/reward_model_rank_correlation"), ".3f"),
        "auc_within": number(value("evaluation/reward_model_auc_within_groups"), ".3f"),
        "greedy": number(value("evaluation/greedy_accuracy"), ".3f"),
    }
