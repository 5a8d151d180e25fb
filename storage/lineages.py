"""What a lineage remembers beside its iterations: its recipe, and what was asked of it."""

import json
import logging
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from storage import files, working_copy
from storage.errors import CorruptArtifact, RecipeConflict, UnknownLineage
from storage.lock import require_token
from storage.manifest import code, differences, utc_now
from storage.migrations import LINEAGE_STEPS, brought_forward, newest_format
from storage.refs import Frozen, Place, check_lineage_name, mistakes

log = logging.getLogger(__name__)

CURE = "restore it from a copy"
RECIPE_FILE = "lineage.json"
REQUEST_FILE = "request.json"
HISTORY = "history_"
"""What the labels of a branch's parents are called in its first record: history_0000, history_0001, ..."""
FREE_KEYS = ("num_iterations", "guards", "machine", "rollout.engine.server")
"""Recipe keys (dotted) that may change between runs of one lineage: how much to run, on what, and when to stop."""


class Request(Frozen):
    """``num_iterations`` asked for after iteration ``start``, so that the run ends at ``target``."""

    num_iterations: int
    start: int
    target: int


class Parent(Frozen):
    """The policy version that a lineage was branched from, and the iteration of its lineage that made it."""

    lineage: str
    version: str
    iteration: int


def record_recipe(place: Place, recipe: dict[str, Any], parent: Parent | None = None) -> None:
    """Write the recipe of a new lineage; for an old one, RecipeConflict names every key that differs.

    The file of an older format is written anew in this one: settings that did not exist when the lineage was born are
    recorded as this run has them, and named in a warning, so that they hold from now on.
    """
    root, path = Path(place.root), place.lineage_folder / RECIPE_FILE
    require_same_recipe(root, place.lineage, recipe)
    if not path.is_file():
        born = {"name": place.lineage, "created_at": utc_now(), "code": code().model_dump(), "recipe": recipe}
        _write(place, born if parent is None else {**born, "parent": parent.model_dump()})
    elif (number := _raw(root, place.lineage).get("format")) != newest_format(LINEAGE_STEPS):
        fields = _read(root, place.lineage)
        added = [line.partition(":")[0] for line in differences(fields["recipe"], _completed(fields["recipe"], recipe))]
        log.warning(
            "lineage %s is of format %s and was brought forward; settings that it did not have are recorded as this run has "
            "them: %s",
            place.lineage,
            number,
            ", ".join(added) or "none",
        )
        _write(place, {**fields, "recipe": _completed(fields["recipe"], recipe)})


def _write(place: Place, fields: dict[str, Any]) -> None:
    require_token(place)
    text = json.dumps({"format": newest_format(LINEAGE_STEPS), **fields}, indent=1, sort_keys=True)
    files.write_atomic(place.lineage_folder / RECIPE_FILE, text.encode())
    working_copy.send_file(place.lineage_folder / RECIPE_FILE)


def require_same_recipe(root: Path, lineage: str, recipe: dict[str, Any]) -> None:
    """RecipeConflict when the lineage exists and was started with another recipe (``FREE_KEYS`` may differ).

    A setting that a lineage of an older format does not have is no difference.
    """
    if not (root / check_lineage_name(lineage) / RECIPE_FILE).is_file():
        return
    recorded = read_recipe(root, lineage)
    if _raw(root, lineage).get("format") != newest_format(LINEAGE_STEPS):
        recorded = _completed(recorded, recipe)
    if lines := differences(_fixed(recorded), _fixed(recipe)):
        listed = "\n".join(f"  {line}" for line in lines)
        raise RecipeConflict(
            f"lineage {lineage!r} was started with another recipe:\n{listed}\n"
            "Run it with the recorded values, branch (igrpo branch LINEAGE@VERSION NEW --set KEY=VALUE), or start another "
            "lineage with --lineage NAME."
        )


def _completed(recorded: Any, asked: Any) -> Any:
    """What was recorded, with the keys that only ``asked`` has."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        common = {key: _completed(value, asked[key]) if key in asked else value for key, value in recorded.items()}
        return {**common, **{key: value for key, value in asked.items() if key not in recorded}}
    if isinstance(recorded, list) and isinstance(asked, list) and len(recorded) == len(asked):
        return [_completed(*both) for both in zip(recorded, asked, strict=True)]
    return recorded


def read_recipe(root: Path, lineage: str) -> dict[str, Any]:
    """The recipe recorded when the lineage was born, in today's names.

    Raises:
        UnknownLineage: there is none of that name. CorruptArtifact, UnknownFormat: its file can not be read.
    """
    recipe: dict[str, Any] = _read(root, lineage)["recipe"]
    return recipe


def read_parent(root: Path, lineage: str) -> Parent | None:
    """What the lineage was branched from, None when it was born from a recipe."""
    parent = _read(root, lineage).get("parent")
    return None if parent is None else Parent.model_validate(parent)


def first_iteration(root: Path, lineage: str) -> int:
    """The iteration of a lineage's first record: 0, and for a branch the one that it was branched from."""
    path = root / lineage / RECIPE_FILE
    parent = files.read_json(path, cure=CURE).get("parent") if path.is_file() else None
    return 0 if parent is None else Parent.model_validate(parent).iteration


def _read(root: Path, lineage: str) -> dict[str, Any]:
    path = root / lineage / RECIPE_FILE
    fields = brought_forward(_raw(root, lineage), LINEAGE_STEPS, path)
    if not isinstance(fields.get("recipe"), dict):
        raise CorruptArtifact(f"{path} holds no recipe; {CURE}")
    return fields


def _raw(root: Path, lineage: str) -> dict[str, Any]:
    path = root / check_lineage_name(lineage) / RECIPE_FILE
    require_lineage(root, lineage)
    return files.read_json(path, cure=CURE)


def _fixed(recipe: dict[str, Any]) -> dict[str, Any]:
    fixed = deepcopy(recipe)
    for key in FREE_KEYS:
        *path, last = key.split(".")
        here: Any = fixed
        for name in path:
            here = here.get(name, {})
        here.pop(last, None)
    return fixed


def target_iteration(place: Place, completed: int, num_iterations: int) -> int:
    """The iteration at which this run ends, remembered so that the same command after a kill ends at the same one.

    A request is open until ``close_request``, also when its last iteration is finished: a run that died between that
    and its end has nothing left to run, and must not begin as many again. An open request for the same number of
    iterations is continued; any other call asks for ``num_iterations`` beyond those completed.
    """
    if num_iterations < 1:
        raise ValueError(f"num_iterations is {num_iterations}; ask for at least 1")
    require_token(place)
    request = _open_request(place)
    if request is None or request.num_iterations != num_iterations or completed > request.target:
        request = Request(num_iterations=num_iterations, start=completed, target=completed + num_iterations)
        files.write_atomic(place.lineage_folder / REQUEST_FILE, (request.model_dump_json() + "\n").encode())
        working_copy.send_file(place.lineage_folder / REQUEST_FILE)
    return request.target


def close_request(place: Place) -> None:
    """The run did what was asked: the next one asks anew."""
    require_token(place)
    working_copy.remove(place.lineage_folder / REQUEST_FILE)
    (place.lineage_folder / REQUEST_FILE).unlink(missing_ok=True)
    files.fsync_folder(place.lineage_folder)


def is_interrupted(place: Place) -> bool:
    """Whether a run of this lineage ended before it had done what was asked of it."""
    return _open_request(place) is not None


def _open_request(place: Place) -> Request | None:
    path = place.lineage_folder / REQUEST_FILE
    if not path.is_file():
        return None
    cure = "delete it, then the next run asks anew"
    fields = files.read_json(path, cure=cure)
    try:
        return Request.model_validate(fields)
    except ValidationError as error:
        raise CorruptArtifact(f"{path} is not a request: {mistakes(error)}; {cure}") from error


def require_lineage(root: Path, lineage: str) -> None:
    """UnknownLineage, naming those that there are, unless the store has it; its file need not be readable."""
    if not (root / check_lineage_name(lineage) / RECIPE_FILE).is_file():
        raise UnknownLineage(f"no lineage {lineage!r} in {root}; there are: {', '.join(list_lineages(root)) or 'none'}")


def list_lineages(root: Path) -> list[str]:
    """Names of the lineages in the store, sorted."""
    return sorted(path.parent.name for path in root.glob(f"*/{RECIPE_FILE}"))


def sweep(place: Place) -> int:
    """Delete the unfinished writes of earlier runs; gives how many. Only the holder may: others' writes look the same."""
    require_token(place)
    swept = files.sweep_unfinished(place.lineage_folder)
    if swept:
        log.warning("removed %d unfinished writes of an interrupted run from %s", swept, place.lineage_folder)
    return swept


def flattened(recipe: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """A recipe as dotted keys and text values, for people to compare runs by."""
    flat: dict[str, str] = {}
    for key, value in recipe.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and value:
            flat |= flattened(value, name)
        else:
            flat[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return flat
