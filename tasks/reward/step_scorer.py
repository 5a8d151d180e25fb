"""What a process reward model says about the steps of completions, and about a completion as a whole."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tasks.reward.encoding import sequence_ids
from tasks.reward.process_head import ProcessRewardModel, step_columns
from tasks.reward.scorer import length_batches, padded
from tasks.reward.step_kinds import StepsConfig
from tasks.reward.step_plan import PrefixLengths
from tasks.verifiers.steps import StepRewards, at_positions, cut, token_ends
from tasks.verifiers.verdict import Verdict, failed, scored, unscored

Row = Mapping[str, Any]
StepSequence = tuple[list[int], list[int]]
"""Token ids, and the positions among them at which steps end."""


def step_sequence(
    prompt_ids: Sequence[int], completion_ids: Sequence[int], step_ends: Sequence[int], max_tokens: int
) -> StepSequence:
    """What the model reads for a completion, the same in training and in scoring, and where its steps end in it.

    Prompt and completion as they were sampled, cut at ``max_tokens``; steps that end behind the cut are left out.

    Args:
        step_ends: each step's last token within the completion, from 0.
    """
    ids = sequence_ids(prompt_ids, completion_ids, max_tokens)
    return ids, [len(prompt_ids) + end for end in step_ends if len(prompt_ids) + end < len(ids)]


@torch.no_grad()
def step_logits(
    model: ProcessRewardModel, sequences: Sequence[StepSequence], *, micro_batch_tokens: int
) -> list[list[float]]:
    """The log-odds (float32) of every step, per sequence in order; sorted by length into batches."""
    model.eval()
    logits: list[list[float]] = [[] for _ in sequences]
    for batch in length_batches([len(ids) for ids, _ in sequences], micro_batch_tokens):
        ids = [sequences[index][0] for index in batch]
        positions = [sequences[index][1] for index in batch]
        found = model(*padded(ids, model.device), *step_columns(positions, list(map(len, ids)), model.device)).tolist()
        for index, ends in zip(batch, positions, strict=True):
            logits[index], found = found[: len(ends)], found[len(ends) :]
    return logits


def score_steps(
    model: ProcessRewardModel,
    completions: Sequence[Row],
    config: StepsConfig,
    prefix_lengths: PrefixLengths,
    *,
    micro_batch_tokens: int,
    max_tokens: int,
) -> tuple[list[Verdict], list[StepRewards | None]]:
    """Per completion its outcome (``config.reduction`` over its steps) and its steps, each with its probability.

    Steps are cut from the text as they were for the labels. A completion without text has no steps, and one of more than
    ``max_tokens`` tokens has steps that the model can not read: both are ``unscored``. A number that is not finite is an
    ``error``. Neither has steps.
    """
    ends = [
        token_ends(len(row["completion_token_ids"]), cut(row["text"], config.split), _lengths(row, prefix_lengths))
        for row in completions
    ]
    readable = [
        index
        for index, row in enumerate(completions)
        if ends[index] and len(row["prompt_token_ids"]) + len(row["completion_token_ids"]) <= max_tokens
    ]
    sequences = [
        step_sequence(row["prompt_token_ids"], row["completion_token_ids"], ends[index], max_tokens)
        for index, row in ((index, completions[index]) for index in readable)
    ]
    logits = dict(zip(readable, step_logits(model, sequences, micro_batch_tokens=micro_batch_tokens), strict=True))
    verdicts: list[Verdict] = []
    steps: list[StepRewards | None] = []
    for index, row in enumerate(completions):
        verdict, found = _judged(logits.get(index), ends[index], len(row["completion_token_ids"]), config)
        verdicts.append(verdict)
        steps.append(found)
    return verdicts, steps


def _lengths(row: Row, prefix_lengths: PrefixLengths) -> Callable[[int], int]:
    return prefix_lengths(row["completion_token_ids"])


def _judged(
    logits: Sequence[float] | None, ends: Sequence[int], num_tokens: int, config: StepsConfig
) -> tuple[Verdict, StepRewards | None]:
    if not ends:
        return unscored("the completion has no steps"), None
    if logits is None:
        return unscored("prompt and completion are longer than reward_model.training.max_tokens"), None
    if bad := [logit for logit in logits if not math.isfinite(logit)]:
        return failed(f"the process reward model gave {bad[0]}"), None
    placed = at_positions(ends, [probability(logit) for logit in logits], num_tokens)
    return scored(REDUCTIONS[config.reduction](placed.rewards)), placed


def probability(logit: float) -> float:
    """sigmoid(logit), without overflow; 0 or 1 to the last digit from about +-40 on."""
    small = math.exp(-abs(logit))
    return 1.0 / (1.0 + small) if logit >= 0 else small / (1.0 + small)


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
