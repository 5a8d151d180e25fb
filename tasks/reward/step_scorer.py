"""What a process reward model says about the steps of completions, and about a completion as a whole."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.reward.calibration import sigmoid
from tasks.reward.head import RewardModel
from tasks.reward.scorer import score_sequences
from tasks.reward.step_examples import step_sequence
from tasks.reward.step_kinds import StepsConfig
from tasks.reward.step_plan import PrefixLengths
from tasks.verifiers.steps import StepRewards, at_positions, cut, token_ends
from tasks.verifiers.verdict import Verdict, failed, scored, unscored

Row = Mapping[str, Any]


def score_steps(
    model: RewardModel,
    completions: Sequence[Row],
    config: StepsConfig,
    prefix_lengths: PrefixLengths,
    *,
    micro_batch_tokens: int,
    max_tokens: int,
) -> tuple[list[Verdict], list[StepRewards | None]]:
    """Per completion its outcome (``config.reduction`` over its steps) and its steps, each with its probability:
    sigmoid(log-odds / the model's temperature).

    Steps are cut from the text as they were for the labels. A completion without text has no steps, and one of more than
    ``max_tokens`` tokens has steps that the model can not read: both are ``unscored``. A number that is not finite is an
    ``error``. Neither has steps.
    """
    ends = [
        token_ends(len(ids), cut(row["text"], config.split), prefix_lengths(ids))
        for row in completions
        for ids in (row["completion_token_ids"],)
    ]
    readable = [
        index
        for index, row in enumerate(completions)
        if ends[index] and len(row["prompt_token_ids"]) + len(row["completion_token_ids"]) <= max_tokens
    ]
    sequences, positions = [], []
    for index in readable:
        row = completions[index]
        ids, at = step_sequence(row["prompt_token_ids"], row["completion_token_ids"], ends[index], max_tokens)
        sequences.append(ids)
        positions.append(at)
    found = score_sequences(model, sequences, positions, micro_batch_tokens=micro_batch_tokens)
    logits = {index: [logit / model.temperature for logit in each] for index, each in zip(readable, found, strict=True)}
    verdicts: list[Verdict] = []
    steps: list[StepRewards | None] = []
    for index, row in enumerate(completions):
        verdict, placed = _judged(logits.get(index), ends[index], len(row["completion_token_ids"]), config)
        verdicts.append(verdict)
        steps.append(placed)
    return verdicts, steps


def _judged(
    logits: Sequence[float] | None, ends: Sequence[int], num_tokens: int, config: StepsConfig
) -> tuple[Verdict, StepRewards | None]:
    if not ends:
        return unscored("the completion has no steps"), None
    if logits is None:
        return unscored("prompt and completion are longer than reward_model.training.max_tokens"), None
    if bad := [logit for logit in logits if not math.isfinite(logit)]:
        return failed(f"the process reward model gave {bad[0]}"), None
    placed = at_positions(ends, [sigmoid(logit) for logit in logits], num_tokens)
    return scored(REDUCTIONS[config.reduction](placed.rewards)), placed


def least(probabilities: Sequence[float]) -> float:
    """The weakest step: a solution is as right as its worst step.

    Source: the minimum of Math-Shepherd, arXiv:2312.08935 (its way to rank whole solutions).
    """
    return min(probabilities)


def product(probabilities: Sequence[float]) -> float:
    """The chance that every step is right, were they independent; falls with the number of steps.

    Source: Let's Verify Step by Step, arXiv:2305.20050, section 2.6.
    """
    return math.prod(probabilities)


def last(probabilities: Sequence[float]) -> float:
    """The last step alone: what an outcome reward model would be asked.

    Source: the last-step aggregation of arXiv:2408.03314, section 5.1.
    """
    return probabilities[-1]


def mean(probabilities: Sequence[float]) -> float:
    """The average step; one wrong step among many right ones hardly shows.

    Source: ours, the plain alternative to the three above.
    """
    return math.fsum(probabilities) / len(probabilities)


REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": least,
    "product": product,
    "last": last,
    "mean": mean,
}
