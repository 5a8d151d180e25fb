"""What a lineage remembers beside its tables and checkpoints: its recipe, what was asked of it, its iterations."""

import json
import logging
import re
from pathlib import Path
from typing import Any

from storage import commits, files
from storage.errors import CorruptArtifact, RecipeConflict, UnknownLineage
from storage.lock import require_token
from storage.manifest import Provenance, code, differences, read_manifest, utc_now
from storage.refs import DatasetRef, Frozen, ModelRef, Place

log = logging.getLogger(__name__)

RECIPE_FILE = "lineage.json"
REQUEST_FILE = "request.json"
SUMMARY_FILE = "summary.json"
RECORD = "record"
FREE_KEYS = ("num_iterations", "machine")
"""Recipe keys that may change between runs of one lineage: how much to run, and on what."""

_ITERATION_FOLDER = re.compile(r"iteration-(\d{4,})")


class IterationRecord(Frozen):
    """The last commit of an iteration: an iteration without it is unfinished."""

    iteration: int
    policy: ModelRef
    reference: ModelRef
    reward: ModelRef
    """The reward model after the iteration; the one that scored it belongs to the record before."""
    champion: ModelRef
    tables: dict[str, DatasetRef]
    metrics: dict[str, float]
    seconds: float
    """Wall time of the process that finished the iteration; a resumed iteration counts only its last part."""
    promotion: str = ""
    """Why the champion moved or stayed."""


def record_recipe(place: Place, recipe: dict[str, Any]) -> None:
    """Write the recipe of a new lineage; for an old one, RecipeConflict names every key that differs."""
    require_same_recipe(Path(place.root), place.lineage, recipe)
    path = place.lineage_folder / RECIPE_FILE
    if not path.is_file():
        require_token(place)
        record = {"format": 1, "recipe": recipe, "created_at": utc_now(), "code": code().model_dump()}
        files.write_atomic(path, json.dumps(record, indent=1, sort_keys=True).encode())


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
    """The recipe recorded when the lineage was born."""
    path = root / lineage / RECIPE_FILE
    if not path.is_file():
        raise UnknownLineage(f"no lineage {lineage!r} in {root}; there are: {', '.join(list_lineages(root)) or 'none'}")
    recipe = json.loads(path.read_bytes())["recipe"]
    assert isinstance(recipe, dict)
    return recipe


def _fixed(recipe: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recipe.items() if key not in FREE_KEYS}


def target_iteration(place: Place, completed: int, num_iterations: int) -> int:
    """The iteration at which this run ends, remembered so that the same command after a kill ends at the same one.

    An unfinished request for the same number of iterations is continued; any other call asks for ``num_iterations``
    beyond those completed.
    """
    path = place.lineage_folder / REQUEST_FILE
    request = json.loads(path.read_bytes()) if path.is_file() else {}
    if request.get("num_iterations") == num_iterations and completed < request["target"]:
        return int(request["target"])
    require_token(place)
    target = completed + num_iterations
    files.write_atomic(path, json.dumps({"num_iterations": num_iterations, "target": target}).encode())
    return target


def publish_record(place: Place, record: IterationRecord, scored_by: ModelRef) -> IterationRecord:
    """Commit the record: from here on the iteration is finished."""

    def write(aside: Path) -> None:
        (aside / "record.json").write_text(record.model_dump_json(indent=1) + "\n")

    inputs = {"policy": record.policy.digest, "reward": record.reward.digest, "scored_by": scored_by.digest}
    inputs |= {name: ref.digest for name, ref in record.tables.items()}
    commits.publish(place, place.folder(RECORD), write, Provenance(stage=RECORD, inputs=inputs), metrics=record.metrics)
    return record


def records(root: Path, lineage: str) -> list[IterationRecord]:
    """The finished iterations in order; a damaged record is named in a warning and ends the list.

    What comes after a damaged iteration was built on something that can not be checked any more, so the newest that
    counts is the one before.
    """
    found: list[IterationRecord] = []
    for number, folder in _iteration_folders(root / lineage):
        try:
            record = _read_record(folder / RECORD)
        except CorruptArtifact as error:
            log.warning("iteration %d of %s does not count: %s", number, lineage, error)
            break
        if record is None or record.iteration != len(found):
            break
        found.append(record)
    return found


def latest_record(root: Path, lineage: str) -> IterationRecord | None:
    """The newest finished iteration (numerically: 10 comes after 9), None for a lineage without one."""
    found = records(root, lineage)
    return found[-1] if found else None


def _read_record(folder: Path) -> IterationRecord | None:
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    manifest.verify(folder)
    record = IterationRecord.model_validate_json((folder / "record.json").read_bytes())
    policy = read_manifest(Path(record.policy.uri))
    if policy is None or (not policy.pruned and policy.broken_parts(Path(record.policy.uri))):
        raise CorruptArtifact(f"its policy {record.policy.uri} is missing or damaged")
    return record


def _iteration_folders(lineage_folder: Path) -> list[tuple[int, Path]]:
    if not lineage_folder.is_dir():
        return []
    matched = [(_ITERATION_FOLDER.fullmatch(path.name), path) for path in lineage_folder.iterdir()]
    return sorted((int(match.group(1)), path) for match, path in matched if match)


def write_summary(place: Place, summary: dict[str, Any]) -> Path:
    """Rewrite ROOT/LINEAGE/summary.json in one step."""
    require_token(place)
    path = place.lineage_folder / SUMMARY_FILE
    files.write_atomic(path, (json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode())
    return path


def read_summary(root: Path, lineage: str) -> dict[str, Any]:
    """The summary, {} before the bootstrap is finished."""
    path = root / lineage / SUMMARY_FILE
    return json.loads(path.read_bytes()) if path.is_file() else {}


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


def summary_of(root: Path, lineage: str) -> dict[str, Any]:
    """The lineage's finished iterations in numbers, from their records; a number that was not measured is null."""
    found = records(root, lineage)
    if not found:
        return {}
    return {
        "lineage": lineage,
        "recipe": read_recipe(root, lineage)["name"],
        "baseline_accuracy": found[0].metrics.get("evaluation/accuracy"),
        "baseline_greedy_accuracy": found[0].metrics.get("evaluation/greedy_accuracy"),
        "baseline_accuracy_given_working": found[0].metrics.get("evaluation/accuracy_given_working"),
        "iterations": [_summary_row(record) for record in found[1:]],
    }


def _summary_row(record: IterationRecord) -> dict[str, Any]:
    value = record.metrics.get
    return {
        "iteration": record.iteration,
        "reward_mean": value("reward_mean"),
        "accuracy_before": value("evaluation/accuracy_before"),
        "accuracy_after": value("evaluation/accuracy"),
        "greedy_accuracy_after": value("evaluation/greedy_accuracy"),
        "accuracy_given_working_after": value("evaluation/accuracy_given_working"),
        "working_share_after": value("evaluation/working_share"),
        "reward_model_accuracy_before": value("reward_model/heldout_accuracy_before"),
        "reward_model_accuracy_after": value("reward_model/heldout_accuracy_after"),
        "reward_model_auc_before": value("reward_model/heldout_auc_before"),
        "reward_model_auc_after": value("reward_model/heldout_auc_after"),
        "num_fresh": int(value("replay/num_fresh", 0)),
        "num_replayed": int(value("replay/num_replayed", 0)),
        "policy_version": int(record.policy.version),
        "reward_version": int(record.reward.version),
        "champion_version": int(record.champion.version),
        "promotion": record.promotion,
        "seconds": round(record.seconds, 3),
    }
