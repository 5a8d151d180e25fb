"""Which prompts come next."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.values.seeds import derive_seed

Row = Mapping[str, Any]


def select(rows: Sequence[Row], *, num_prompts: int, seed: int, step_index: int) -> list[dict[str, Any]]:
    """The training prompts of a step, each with its ``group_id``.

    Steps walk through seeded epochs: every training prompt comes once before any comes again. The order within an epoch
    is by hash of (seed, epoch, prompt id), so it does not depend on the order of ``rows``.

    Args:
        rows: rows of the prompts table; held-out ones are passed over.
        step_index: steps since the lineage began, 0-based.
    """
    train = [row for row in rows if row["split"] == "train"]
    if not train:
        raise ValueError("there are no training prompts to select from")
    chosen = []
    epochs: dict[int, list[Row]] = {}
    for position in range(step_index * num_prompts, (step_index + 1) * num_prompts):
        epoch, offset = divmod(position, len(train))
        if epoch not in epochs:
            epochs[epoch] = _shuffled(train, seed, epoch)
        row = epochs[epoch][offset]
        # One prompt may come twice in a step that spans two epochs: two groups.
        chosen.append({"group_id": f"s{step_index:06d}-e{epoch:04d}-{row['prompt_id']}", **row})
    return chosen


def _shuffled(train: Sequence[Row], seed: int, epoch: int) -> list[Row]:
    return sorted(train, key=lambda row: derive_seed(seed, epoch, row["prompt_id"]))


def select_heldout(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every held-out prompt, one group each, sorted by prompt id; the same groups in every evaluation."""
    heldout = sorted((row for row in rows if row["split"] == "heldout"), key=lambda row: str(row["prompt_id"]))
    return [{"group_id": f"heldout-{row['prompt_id']}", **row} for row in heldout]


def select_replacements(
    rows: Sequence[Row], taken: Sequence[Row], *, num_prompts: int, seed: int, step_index: int, round_number: int
) -> list[dict[str, Any]]:
    """Training prompts in place of those that gave no signal: none that the step has already drawn.

    The order is by hash of (seed, step, round, prompt id). Fewer than ``num_prompts`` when no more are left.

    Args:
        taken: the selections of the step's earlier rounds.
        round_number: 1 for the first round of replacement.
    """
    drawn = {row["prompt_id"] for row in taken}
    left = [row for row in rows if row["split"] == "train" and row["prompt_id"] not in drawn]
    left.sort(key=lambda row: derive_seed(seed, step_index, round_number, row["prompt_id"]))
    return [
        {"group_id": f"s{step_index:06d}-r{round_number:02d}-{row['prompt_id']}", **row} for row in left[:num_prompts]
    ]
