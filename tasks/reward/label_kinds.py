"""The kinds of label by their settings: where each is stored, how it is made, trained on and judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from tasks.reward.config import LabelsConfig, PairsConfig, PointsConfig
from tasks.reward.examples import Example, Judged
from tasks.reward.losses import binary_cross_entropy
from tasks.reward.pairs import SIDES, judge_pair, pair_example, pair_loss, pairs_from_rows
from tasks.reward.points import judge_point, point_example, points_from_rows
from tasks.reward.step_examples import judge_step, step_example
from tasks.reward.step_kinds import StepsConfig
from tasks.reward.step_metrics import first_wrong_step

Row = Mapping[str, Any]
LabelsTable = Literal["pairs", "points", "step_labels"]
MixedTable = Literal["mixed_pairs", "mixed_points", "mixed_step_labels"]


@dataclass(frozen=True)
class LabelKind:
    """One kind of label; everything else about reward models is the same for all of them."""

    table: LabelsTable
    """Its rows; they begin with the columns of ``labels.key_columns``."""
    mixed_table: MixedTable
    """The same columns and ``is_replayed``."""
    completions: tuple[str, ...]
    """The columns that hold token ids of completions."""
    from_rows: Callable[..., tuple[list[dict[str, Any]], dict[str, float]]] | None
    """(completions, rewards, prompt_keys, config, *, source, origin_iteration, seed) -> rows of the table, metrics; None
    where verdicts are not enough (steps have to be continued)."""
    example: Callable[[Row, int], Example | None]
    """(row, max_tokens) -> what it asks of the model; None when the cut left nothing to learn."""
    loss: Callable[..., Tensor]
    """(scores_N, targets_K, *, denominator) -> a sum over the targets, divided by those of the whole optimiser batch."""
    judge: Callable[[Example, Sequence[float]], Judged]
    """(example, its scores) -> what accuracy, calibration, AUC and the correlation with length are taken of."""
    measure: Callable[[Sequence[Judged]], dict[str, float]] = lambda judged: {}
    """Metrics that this kind has beside those of every kind."""


def kind_of(config: LabelsConfig) -> LabelKind:
    return LABELS[type(config)]


LABELS: dict[type, LabelKind] = {
    PairsConfig: LabelKind("pairs", "mixed_pairs", SIDES, pairs_from_rows, pair_example, pair_loss, judge_pair),
    PointsConfig: LabelKind(
        "points",
        "mixed_points",
        ("completion_token_ids",),
        points_from_rows,
        point_example,
        binary_cross_entropy,
        judge_point,
    ),
    StepsConfig: LabelKind(
        "step_labels",
        "mixed_step_labels",
        ("completion_token_ids",),
        None,
        step_example,
        binary_cross_entropy,
        judge_step,
        first_wrong_step,
    ),
}
