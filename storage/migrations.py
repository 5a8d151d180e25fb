"""Older files of a lineage, brought forward step by step: recipes, records and decisions.

Each table below has one function per step, from its key to the next number; a file without a number is of format 1. A
file is migrated as it is read; lineage.json is written anew by the next run, records and decisions stay as they are.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from storage.errors import UnknownFormat
from storage.locations import relocate_refs

Json = dict[str, Any]
Step = Callable[[Json], Json]

OLD_TABLES = {"reward_training": "mixed_pairs"}
"""Name of a table before schema 3 -> its name now."""


def brought_forward(fields: Json, steps: Mapping[int, Step], path: Path) -> Json:
    """The fields in the newest format, their ``format`` taken off.

    Raises:
        UnknownFormat: the file is of a later version of this code.
    """
    newest = newest_format(steps)
    number = fields.get("format", 1)
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= newest:
        raise UnknownFormat(
            f"{path} has format {number!r}, this code reads 1 to {newest}; use the version of iterative-grpo that wrote it, "
            "or a later one"
        )
    here = {key: value for key, value in fields.items() if key != "format"}
    for step in range(number, newest):
        here = steps[step](here)
    return here


def newest_format(steps: Mapping[int, Step]) -> int:
    """The number that this code writes."""
    return max(steps) + 1


def lineage_from_1(fields: Json) -> Json:
    """A recipe of schema 1 or 2: the policy update in parts, and kinds of labels for the reward model."""
    recipe = fields.get("recipe")
    if not isinstance(recipe, dict):
        return fields
    recipe = deepcopy(recipe)
    if isinstance(update := recipe.get("update"), dict) and "kl_beta" in update:
        _name_the_parts(update)
    if isinstance(reward := recipe.get("reward_model"), dict):
        if isinstance(pairs := reward.pop("pairs", None), dict):
            reward["labels"] = {"kind": "pairs", **pairs}
        if isinstance(training := reward.get("training"), dict) and "batch_pairs" in training:
            training["batch_labels"] = training.pop("batch_pairs")
    return {**fields, "recipe": recipe}


def _name_the_parts(update: Json) -> None:
    """What schema 1 did without saying so: GRPO with outcome supervision, in the parts that it is made of since."""
    beta = update.pop("kl_beta")
    update["kl"] = {"beta": beta, "estimator": "k3", "placement": "loss"}
    update["objective"] = {
        "kind": "clip",
        "clip_low": update.pop("clip_low", 0.2),
        "clip_high": update.pop("clip_high", 0.2),
        "dual_clip": None,
    }
    advantages = update.setdefault("advantages", {})
    update["truncated"] = advantages.pop("truncated", "keep")
    update["advantages"] = {"kind": "group", "ddof": 1, "normalise": "total", **advantages}
    update["aggregation"] = {"kind": "sequence_mean"}
    update["group_filter"] = {"kind": "keep"}
    update["overlong"] = {"kind": "none"}
    update["rollout_correction"] = {"kind": "none"}
    update |= {"rollout_policy": "current", "critic": None, "entropy_coefficient": 0.0}


def record_from_1(fields: Json) -> Json:
    """A record with absolute refs, and the names that tables had before schema 3."""
    fields = relocate_refs(fields)
    tables = fields.get("tables")
    if not isinstance(tables, dict):
        return fields
    tables = {("labels" if name == "pairs" else name): _renamed(ref) for name, ref in tables.items()}
    return {**fields, "tables": tables}


def _renamed(ref: Any) -> Any:
    if not isinstance(ref, dict) or not isinstance(table := ref.get("table"), str):
        return ref
    return {**ref, "table": OLD_TABLES.get(table, table)}


LINEAGE_STEPS: Mapping[int, Step] = {1: lineage_from_1}
"""lineage.json. 2: the recipe's names since schema 3."""
RECORD_STEPS: Mapping[int, Step] = {1: record_from_1}
"""record.json. 2: refs relative to the store's root."""
DECISION_STEPS: Mapping[int, Step] = {1: relocate_refs}
"""decisions/NNNN.json. 2: refs relative to the store's root."""
