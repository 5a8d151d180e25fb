"""Recipes: found by name or path, changed by --set, parsed with every mistake named."""

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.config import PipelineConfig

FOLDER = Path(__file__).resolve().parent.parent / "deployments" / "configs"


class RecipeError(Exception):
    """A recipe that can not be used; the message names the value and the cure."""


def shipped() -> dict[str, str]:
    """Names of the shipped recipes and the first line of each."""
    return {
        path.stem: path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        for path in sorted(FOLDER.glob("*.toml"))
    }


def load_recipe(recipe: str, overrides: list[str]) -> PipelineConfig:
    """The settings of a shipped recipe or a TOML file, with ``KEY=VALUE`` changes applied.

    Raises:
        RecipeError: no such recipe, not TOML, or wrong settings (all of them are named).
    """
    path = _find(recipe)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not a TOML file: {error}") from error
    apply_overrides(settings, overrides)
    try:
        return PipelineConfig.model_validate(settings)
    except ValidationError as error:
        raise RecipeError(f"{path} has wrong settings:\n{readable(error)}") from error


def _find(recipe: str) -> Path:
    path = Path(recipe).expanduser()
    if path.suffix == ".toml":
        if not path.is_file():
            raise RecipeError(f"there is no recipe file {recipe}")
        return path
    if recipe not in shipped():
        raise RecipeError(
            f"no recipe is called {recipe!r}; there are {', '.join(shipped())}, or give the path of a .toml file"
        )
    return FOLDER / f"{recipe}.toml"


def apply_overrides(settings: dict[str, Any], overrides: list[str]) -> None:
    """Change settings in place, one ``KEY=VALUE`` after another."""
    for override in overrides:
        apply_override(settings, override)


def apply_override(settings: dict[str, Any], override: str) -> None:
    """Change a setting in place: "rollout.group_size=4" sets it, a list is entered by position.

    Raises:
        RecipeError: not KEY=VALUE, or a path that leads nowhere.
    """
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise RecipeError(f"--set {override!r} is not KEY=VALUE, for example --set rollout.group_size=4")
    *path, last = key.strip().split(".")
    here: Any = settings
    for name in path:
        here = _step(here, name, key) if isinstance(here, list) else here.setdefault(name, {})
        if not isinstance(here, (dict, list)):
            raise RecipeError(f"--set {key}: {name!r} holds {here!r}, not a table")
    if isinstance(here, list):
        _step(here, last, key)
        here[int(last)] = _value(text)
    else:
        here[last] = _value(text)


def _step(items: list[Any], name: str, key: str) -> Any:
    if not name.isdigit() or int(name) >= len(items):
        raise RecipeError(f"--set {key}: {name!r} is not a position in a list of {len(items)}")
    return items[int(name)]


def _value(text: str) -> Any:
    """A TOML value when it is one (5, 0.1, true, "x", [1, 2]), else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def readable(error: ValidationError) -> str:
    """One line per mistake: where, what is wrong, what was given."""
    lines = []
    for mistake in error.errors(include_url=False):
        where = ".".join(str(part) for part in mistake["loc"]) or "recipe"
        message = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            message = "is not a setting here; remove it, correct its name, or choose the kind that has it"
        elif mistake["type"] == "missing":
            message = "is missing"
        given = mistake.get("input")
        shown = "" if isinstance(given, (dict, list)) or mistake["type"] == "missing" else f" (given: {_short(given)})"
        lines.append(f"  {where}: {message}{shown}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:80]
