"""Completions for the report: the best beside the worst of a prompt, each with what verifier and reward model say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sample:
    """One completion as it is shown; ``note`` is what it was chosen for. Numbers that are not known are None."""

    prompt: str
    answer: str
    text: str
    note: str
    reward: float | None
    is_correct: bool | None
    probability: float | None
    num_tokens: int
    is_truncated: bool
    label: str


def with_texts(rewards: Sequence[Row], completions: Sequence[Row], selection: Sequence[Row]) -> list[dict[str, Any]]:
    """Rewards rows with their completion and their prompt, joined by group id and sample index.

    Raises:
        KeyError: a reward has no completion or no prompt: the tables are of different runs.
    """
    texts = {(row["group_id"], row["sample_index"]): row for row in completions}
    prompts = {row["group_id"]: row for row in selection}
    return [
        {**prompts[row["group_id"]], **texts[row["group_id"], row["sample_index"]], **row}  # the reward's own keys win
        for row in rewards
    ]


def contrasts(joined: Sequence[Row], num: int) -> tuple[tuple[Sample, Sample], ...]:
    """The best and the worst completion of the prompts whose rewards lie furthest apart, the furthest first.

    Ties go by group id, and within a group by sample index; groups whose rewards do not differ have no best and worst.
    """
    groups: dict[str, list[Row]] = {}
    for row in joined:
        if row["reward"] is not None:
            groups.setdefault(row["group_id"], []).append(row)
    pairs = []
    for group_id, members in groups.items():
        best = min(members, key=lambda row: (-row["reward"], row["sample_index"]))
        worst = min(members, key=lambda row: (row["reward"], row["sample_index"]))
        if best["reward"] > worst["reward"]:
            pairs.append((worst["reward"] - best["reward"], group_id, best, worst))
    pairs.sort(key=lambda pair: pair[:2])
    return tuple((sample_of(best, "best"), sample_of(worst, "worst")) for _, _, best, worst in pairs[:num])


def sample_of(row: Row, note: str) -> Sample:
    """A joined row as it is shown."""
    return Sample(
        prompt=row["prompt"],
        answer=row["answer"] or "",
        text=row["text"] or "",
        note=note,
        reward=row["reward"],
        is_correct=row["is_correct"],
        probability=row["reward_model_reward"],
        num_tokens=len(row["completion_token_ids"]),
        is_truncated=bool(row["is_truncated"]),
        label=f"{row['group_id']} · {row['sample_index']}",
    )
