"""What step labels ask of the reward model: one score at the end of every step."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.reward.encoding import sequence_ids
from tasks.reward.examples import Example, Judged

Row = Mapping[str, Any]


def step_sequence(
    prompt_ids: Sequence[int], completion_ids: Sequence[int], step_ends: Sequence[int], max_tokens: int
) -> tuple[list[int], list[int]]:
    """The ids that the model reads for a completion, the same in training and in scoring, and where its steps end in them.

    Prompt and completion as they were sampled, cut at ``max_tokens``; steps that end behind the cut are left out.

    Args:
        step_ends: each step's last token within the completion, from 0.
    """
    ids = sequence_ids(prompt_ids, completion_ids, max_tokens)
    return ids, [len(prompt_ids) + end for end in step_ends if len(prompt_ids) + end < len(ids)]


def step_example(row: Row, max_tokens: int) -> Example | None:
    """The completion read at the end of each labelled step; None when all of them end behind the cut at ``max_tokens``.

    Raises:
        ValueError: the row has not one label per step, or a label outside [0, 1].
    """
    ends, labels = row["step_ends"], row["step_labels"]
    if len(ends) != len(labels) or not all(0 <= label <= 1 for label in labels):
        raise ValueError(
            f"label {row['label_id']} has the steps {ends} and the labels {labels}: one in [0, 1] per step"
        )
    ids, positions = step_sequence(row["prompt_token_ids"], row["completion_token_ids"], ends, max_tokens)
    if not positions:
        return None
    return Example(
        label_id=row["label_id"],
        sequences=(ids,),
        positions=(positions,),
        targets=tuple(labels[: len(positions)]),
        num_tokens=(len(ids) - len(row["prompt_token_ids"]),),
    )


def judge_step(example: Example, scores: Sequence[float]) -> Judged:
    """Each score is the log-odds that its step is right; a step is as long as the completion is up to its end."""
    prompt = len(example.sequences[0]) - example.num_tokens[0]
    return Judged(
        logits=tuple(scores),
        targets=example.targets,
        scores=tuple(scores),
        labels=example.targets,
        lengths=tuple(position - prompt + 1 for position in example.positions[0]),
    )
