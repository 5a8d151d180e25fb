"""`igrpo branch`: a new lineage that goes on from a version of another one, without a copy of its weights."""

import json
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from flows.config import PipelineConfig
from flows.recipes import RecipeError, apply_override, readable
from storage import branching, lineages, lock
from storage.lineages import Parent
from storage.refs import check_lineage_name
from storage.store_lock import hold_store

FIXED = ("name", "prompts", "policy", "reward_model.labels", "reward_model.num_initial_prompts")
"""Settings that made what a branch begins with: they can not be changed with it."""


def branch_lineage(out: Console, root: Path, source: str, name: str, overrides: list[str]) -> None:
    """Make the branch and say how to go on with it. The same command after an interruption finishes it.

    Raises:
        RecipeError: the source is not LINEAGE@VERSION, a name or an override can not be used.
        StorageError: there is no such version, its weights are gone, or the new lineage is there already.
    """
    lineage, separator, version = source.rpartition("@")
    if not separator or not version.removeprefix("v").isdigit():
        raise RecipeError(f"{source!r} is not LINEAGE@VERSION, for example quickstart@3")
    try:
        check_lineage_name(name)
        lineages.require_lineage(root, lineage)
    except ValueError as error:
        raise RecipeError(str(error)) from error
    recipe = changed(lineages.read_recipe(root, lineage), overrides)
    number = str(int(version.removeprefix("v")))
    origin = branching.origin_of(root, lineage, number)
    branching.require_free(root, name, Parent(lineage=lineage, version=number, iteration=origin.iteration))
    with hold_store(root), lock.hold(root, name) as place:
        record = branching.branch(place, lineage, number, recipe)
    parent = f"policy v{number} of {lineage}"
    out.print(f"lineage {name} begins with {parent} as its policy v{record.policy.version}", highlight=False)
    settings = " ".join(f"--set {json.dumps(each)}" for each in overrides)
    out.print(
        f"go on: igrpo run RECIPE --lineage {name} {settings}".rstrip(), markup=False, highlight=False, soft_wrap=True
    )


def changed(recipe: dict[str, object], overrides: list[str]) -> dict[str, object]:
    """The recipe with the overrides, complete and checked.

    Raises:
        RecipeError: an override is wrong, or of a setting in ``FIXED``.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        if any(key == fixed or key.startswith(f"{fixed}.") or fixed.startswith(f"{key}.") for fixed in FIXED):
            raise RecipeError(
                f"--set {key}: a branch begins with what this setting made ({', '.join(FIXED)} are fixed); start another "
                "lineage instead: igrpo run RECIPE --lineage NAME"
            )
        apply_override(recipe, override)
    try:
        return PipelineConfig.model_validate(recipe).model_dump(mode="json")
    except ValidationError as error:
        raise RecipeError(f"the recipe of the branch has wrong settings:\n{readable(error)}") from error
