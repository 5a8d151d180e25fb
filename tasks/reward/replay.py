"""Replay: the reward model's new labels mixed with some of its history."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tasks.reward.config import HistoryReplay, MixReplay, ReplayConfig
from tasks.values.seeds import derive_seed

Row = Mapping[str, Any]


def of_history(num_fresh: int, num_history: int, config: HistoryReplay) -> float:
    """A share of the history, whatever the number of new rows.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.4 ("10% of historical data").
    """
    del num_fresh
    return config.fraction * num_history


def of_mix(num_fresh: int, num_history: int, config: MixReplay) -> float:
    """As many rows as make up ``fraction`` of the mixed set: x = f / (1 - f) * fresh.

    Source: the other reading of the same sentence; the usual definition of a replay ratio in off-policy learning.
    """
    del num_history
    return config.fraction / (1.0 - config.fraction) * num_fresh


def num_replayed(num_fresh: int, num_history: int, config: ReplayConfig) -> int:
    """Rows to replay: rounded half up, at least one when there is a history, at most all of it.

    0 when there are no new rows (nothing is retrained then), no history, or ``fraction`` is 0.
    """
    if num_fresh == 0 or num_history == 0 or config.fraction == 0:
        return 0
    wanted = REPLAYS[type(config)](num_fresh, num_history, config)
    # 0.29 * 50 is 14.499999999999998, which half up is 15: round away the binary noise first.
    return min(num_history, max(1, math.floor(round(wanted, 9) + 0.5)))


def mix(
    fresh: Sequence[Row],
    history: Sequence[Row],
    config: ReplayConfig,
    *,
    seed: int,
    heldout_keys: Collection[str],
    anchor_keys: Collection[str] = (),
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the training table: all fresh rows, then the replayed ones, each marked ``is_replayed``.

    Rows whose prompt is in ``anchor_keys`` are left out of both, and counted: forgetting is measured on them.

    The replayed rows are those of the history whose hash of (seed, label id) is smallest: without replacement, and
    independent of the order of the history.

    Raises:
        ValueError: a label id comes twice, or a row's prompt is held out for evaluation.
    """
    ids = [row["label_id"] for row in [*fresh, *history]]
    if len(set(ids)) < len(ids):
        twice = next(label for label in ids if ids.count(label) > 1)
        raise ValueError(f"label {twice} stands twice in the new rows and the history")
    if leaked := [row["label_id"] for row in [*fresh, *history] if row["prompt_key"] in heldout_keys]:
        raise ValueError(
            f"{len(leaked)} labels belong to held-out prompts (first: {leaked[0]}); they may never be trained on"
        )
    num_given = len(fresh) + len(history)
    fresh, history = ([row for row in rows if row["prompt_key"] not in anchor_keys] for rows in (fresh, history))
    count = num_replayed(len(fresh), len(history), config)
    replayed = sorted(history, key=lambda row: derive_seed(seed, row["label_id"]))[:count]
    rows = [{**row, "is_replayed": False} for row in fresh] + [{**row, "is_replayed": True} for row in replayed]
    return rows, {
        "num_fresh": float(len(fresh)),
        "num_replayed": float(count),
        "num_history": float(len(history)),
        "num_anchor_rows_left_out": float(num_given - len(fresh) - len(history)),
    }


REPLAYS: dict[type, Callable[[int, int, Any], float]] = {HistoryReplay: of_history, MixReplay: of_mix}
