"""The anchor set: the oldest labels, never trained on, by which forgetting shows; and what a loss on them blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluation.bootstrap import paired_bootstrap
from tasks.reward.config import AnchorConfig
from tasks.values.seeds import derive_seed

MAX_SHARE_PARTS = 5
"""The anchor set takes at most one part of so many of the initial labels."""
MIN_PROMPTS = 10
"""Anchor prompts below which nothing is compared: a bootstrap of a few prompts knows no doubt."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class AnchorDecision:
    """Whether the retrained model may follow the last good one, with the evidence: the difference of their accuracies."""

    is_refused: bool
    difference: float
    low: float
    high: float


def anchor_rows(labels: Sequence[Row], config: AnchorConfig, *, seed: int) -> list[Row]:
    """The initial labels that are kept out of training: whole prompts, in the order of their hash with the seed, until the
    next one would pass ``config.num_rows`` or a fifth of the labels.

    Whole prompts, because other answers to the same prompt would tell what its held-out ones are.
    """
    most = min(config.num_rows, len(labels) // MAX_SHARE_PARTS)
    by_prompt: dict[str, list[Row]] = {}
    for row in labels:
        by_prompt.setdefault(row["prompt_key"], []).append(row)
    taken: list[Row] = []
    for key in sorted(by_prompt, key=lambda each: (derive_seed(seed, each), each)):
        if len(taken) + len(by_prompt[key]) > most:
            break
        taken += by_prompt[key]
    return taken


def verdict_of(metrics: Mapping[str, float], config: AnchorConfig) -> tuple[bool, str]:
    """Whether a retraining with these metrics was refused, and the evidence in one sentence."""
    if "anchor_difference" not in metrics:
        return False, f"fewer than {MIN_PROMPTS} anchor prompts, too few to compare on"
    is_refused = metrics["is_refused"] == 1.0
    interval = f"{metrics['anchor_difference']:+.3f} [{metrics['anchor_low']:+.3f}, {metrics['anchor_high']:+.3f}]"
    sentence = (
        f"accuracy on {metrics['anchor_num_labels_after']:.0f} anchor labels {interval} against the last good reward model: "
        f"{'worse by more than' if is_refused else 'not worse beyond doubt by'} the margin {config.margin:g}"
    )
    return is_refused, f"refused: {sentence}" if is_refused else sentence


def compare(
    before: Mapping[str, float], after: Mapping[str, float], config: AnchorConfig, *, seed: int
) -> AnchorDecision | None:
    """Refuse a model whose accuracy on the anchor set is worse than the last good one's beyond doubt: the whole paired
    bootstrap interval of the difference lies below -margin. None with fewer than 10 anchor prompts: nothing is known then.

    Args:
        before, after: anchor prompt -> share of its labels that the last good and the retrained model call right; a
            prompt's labels share their completions, so prompts are what is resampled.
    """
    if before.keys() != after.keys():
        raise ValueError(f"the models were measured on {len(before)} and {len(after)} prompts, not on the same ones")
    if len(before) < MIN_PROMPTS:
        return None
    found = paired_bootstrap(
        [after[prompt] - before[prompt] for prompt in sorted(before)],
        confidence=config.confidence,
        num_resamples=config.num_resamples,
        seed=seed,
    )
    # 0.45 - 0.5 is -0.04999999999999999: a loss of exactly the margin is within it.
    return AnchorDecision(
        is_refused=round(found.high + config.margin, 9) < 0,
        difference=found.mean,
        low=found.low,
        high=found.high,
    )
