"""What a lineage remembers beside its iterations: its recipe, and what was asked of it."""

import json
import logging
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from storage import files, working_copy
from storage.errors import CorruptArtifact, RecipeConflict, UnknownFormat, UnknownLineage
from storage.lock import require_token
from storage.manifest import code, differences, utc_now
from storage.refs import Frozen, Place, mistakes

log = logging.getLogger(__name__)

FORMAT = 1
RECIPE_FILE = "lineage.json"
REQUEST_FILE = "request.json"
FREE_KEYS = ("num_iterations", "guards", "machine", "rollout.engine.server")
"""Recipe keys (dotted) that may change between runs of one lineage: how much to run, on what, and when to stop."""


class Request(Frozen):
    """``num_iterations`` asked for after iteration ``start``, so that the run ends at ``target``."""

    num_iterations: int
    start: int
    target: int


def record_recipe(place: Place, recipe: dict[str, Any]) -> None:
    """Write the recipe of a new lineage; for an old one, RecipeConflict names every key that differs."""
    require_same_recipe(Path(place.root), place.lineage, recipe)
    path = place.lineage_folder / RECIPE_FILE
    if not path.is_file():
        require_token(place)
        record = {
            "format": FORMAT,
            "name": place.lineage,
            "recipe": recipe,
            "created_at": utc_now(),
            "code": code().model_dump(),
        }
        files.write_atomic(path, json.dumps(record, indent=1, sort_keys=True).encode())
        working_copy.send_file(path)


def require_same_recipe(root: Path, lineage: str, recipe: dict[str, Any]) -> None:
    """RecipeConflict when the lineage exists and was started with another recipe (``FREE_KEYS`` may differ)."""
    if not (root / lineage / RECIPE_FILE).is_file():
        return
    if lines := differences(_fixed(read_recipe(root, lineage)), _fixed(recipe)):
        listed = "\n".join(f"  {line}" for line in lines)
        raise RecipeConflict(
            f"lineage {lineage!r} was started with another recipe:\n{listed}\n"
            "Run it with the recorded values, or branch: start another lineage with --lineage NAME."
        )


def read_recipe(root: Path, lineage: str) -> dict[str, Any]:
    """The recipe recorded when the lineage was born.

    Raises:
        UnknownLineage: there is none of that name. CorruptArtifact, UnknownFormat: its file can not be read.
    """
    path = root / lineage / RECIPE_FILE
    if not path.is_file():
        raise UnknownLineage(f"no lineage {lineage!r} in {root}; there are: {', '.join(list_lineages(root)) or 'none'}")
    cure = "restore it from a copy"
    record = files.read_json(path, cure=cure)
    if record.get("format") != FORMAT:
        raise UnknownFormat(f"{path} has format {record.get('format')!r}, this code reads {FORMAT}")
    if not isinstance(recipe := record.get("recipe"), dict):
        raise CorruptArtifact(f"{path} holds no recipe; {cure}")
    return recipe


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
