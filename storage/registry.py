"""The model registry: a version per iteration, its files hard links to the store's, registered exactly once."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage.checkpoints import open_folder
from storage.errors import StorageError
from storage.manifest import read_manifest
from storage.mlflow_client import client as client_of
from storage.mlflow_client import local_path, of
from storage.model_files import link_files
from storage.refs import Frozen, ModelRef, Place, Role
from storage.tracking import KEY, ensure_experiment, log_model_inputs, run_key, set_tags

_MODEL_ID = re.compile(r"models:/(m-[0-9a-f]+)")
_RESERVED_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)
_MODEL_TYPES: dict[Role, str] = {"policy": "policy", "reward": "reward-model", "critic": "critic"}
VERSION_TAG = "grpo.version"
WEIGHTS_TAG = "grpo.weights"
"""Of a version whose weights were removed: when, by what, and why."""
ROLES: tuple[Role, ...] = ("policy", "reward", "critic")
CONSUMED_TAGS: dict[Role, str] = {
    "policy": "grpo.policy",
    "reward": "grpo.reward_model",
    "critic": "grpo.critic",
}
"""Tag of a run -> the version it read, by role: what "used by" is searched with."""


class VersionInfo(Frozen):
    """One registered version as a person sees it."""

    version: int
    iteration: int
    tags: dict[str, str]
    aliases: tuple[str, ...]


def registered_name(lineage: str, role: Role) -> str:
    return f"{lineage}-{role}"


def model_uri(lineage: str, ref: ModelRef) -> str:
    """models:/NAME/VERSION, the form in which one model names another."""
    return f"models:/{registered_name(lineage, ref.role)}/{ref.version}"


def register(place: Place, ref: ModelRef, *, run_id: str, tags: Mapping[str, str], description: str) -> ModelRef:
    """MLflow's version of this iteration's model; found again by key however often this is repeated.

    Versions that are registered in order get the store's numbers; where MLflow's own counter has gone on (a creation
    that was sent twice), the store's number stands in the tag ``VERSION_TAG``.

    A crash anywhere leaves a state from which a repeat converges to one logged model and one version. The key names
    the bytes too: a model that had to be rebuilt and came out differently gets a version of its own, never the files
    of the one before.
    """
    client = of(place)
    key = f"{run_key(place)}/{ref.role}/{ref.digest[:16]}"
    tags = {
        **tags,
        KEY: key,
        **({VERSION_TAG: ref.version} if ref.version else {}),
        "grpo.lineage": place.lineage,
        "grpo.iteration": str(place.iteration),
        "grpo.role": ref.role,
        "grpo.digest": ref.digest,
    }
    model = _ensure_logged_model(place, ref, run_id, key, tags)
    name = registered_name(place.lineage, ref.role)
    _ensure_registered_model(client, name, place.lineage, ref.role)
    query = f"name = '{name}' and tags.`{KEY}` = '{key}'"
    versions = client.search_model_versions(query)
    if not versions:
        client.create_model_version(
            name,
            f"models:/{model.model_id}",
            model_id=model.model_id,
            run_id=run_id,
            tags={**tags, **({WEIGHTS_TAG: "removed by igrpo gc"} if _is_pruned(ref) else {})},
            description=description,
            await_creation_for=0,
        )
        versions = client.search_model_versions(query)  # a lost answer makes the client create twice
    kept = min(versions, key=lambda version: int(version.version))
    for twin in versions:
        if twin.version != kept.version:
            client.delete_model_version(name, twin.version)
    for tag, value in tags.items():  # of a version of before this tag was kept, or one that somebody changed
        if kept.tags.get(tag) != value:
            client.set_model_version_tag(name, kept.version, tag, value)
    return ref if ref.version else ref.model_copy(update={"version": str(kept.version)})


def _ensure_registered_model(client: Any, name: str, lineage: str, role: Role) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, tags={"grpo.lineage": lineage, "grpo.role": role})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _ensure_logged_model(place: Place, ref: ModelRef, run_id: str, key: str, tags: Mapping[str, str]) -> Any:
    from mlflow.entities import LoggedModelStatus

    client, experiment = of(place), ensure_experiment(place)
    found = _logged_models(client, experiment, key)
    if not found:
        client.create_logged_model(
            experiment,
            name=f"{ref.role}-{place.iteration:04d}",
            source_run_id=run_id,
            tags=dict(tags),
            model_type=_MODEL_TYPES[ref.role],
        )
        found = _logged_models(client, experiment, key)
    model = found[0]
    for twin in found[1:]:
        client.delete_logged_model(twin.model_id)
    if model.status != LoggedModelStatus.READY:
        if not _is_pruned(ref):
            link_files(open_folder(ref), local_path(model.artifact_location))
        model = client.finalize_logged_model(model.model_id, "READY")
    _ensure_output(client, run_id, model.model_id, place.iteration)
    return model


def _is_pruned(ref: ModelRef) -> bool:
    manifest = read_manifest(Path(ref.uri))
    return manifest is not None and manifest.pruned


def _logged_models(client: Any, experiment: str, key: str) -> list[Any]:
    found = client.search_logged_models([experiment], filter_string=f"tags.`{KEY}` = '{key}'")
    return sorted(found, key=lambda model: (model.creation_timestamp, model.model_id))


def _ensure_output(client: Any, run_id: str, model_id: str, step: int) -> None:
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException

    if model_id in _outputs(client, run_id):
        return
    try:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step)])
    except MlflowException:
        if model_id not in _outputs(client, run_id):  # refused as a double, when the client had to send it twice
            raise


def _outputs(client: Any, run_id: str) -> set[str]:
    outputs = client.get_run(run_id).outputs
    return {output.model_id for output in outputs.model_outputs} if outputs else set()


def number_of(place: Place, ref: ModelRef) -> str:
    """MLflow's own number of a version of the store: the same, unless MLflow's counter has gone on by itself.

    Raises:
        StorageError: MLflow has no such version.
    """
    client, name = of(place), registered_name(place.lineage, ref.role)
    tagged = client.search_model_versions(f"name = '{name}' and tags.`{VERSION_TAG}` = '{ref.version}'")
    same = [each for each in tagged if each.tags.get("grpo.digest") == ref.digest]
    if same:
        return str(min(int(each.version) for each in same))
    for each in client.search_model_versions(f"name = '{name}'"):  # of before the store gave the numbers
        if str(each.version) == ref.version and VERSION_TAG not in each.tags:
            return str(each.version)
    raise StorageError(f"MLflow has no {name} v{ref.version}; `igrpo repair-lineage` records the lineage anew")


def model_id(place: Place, ref: ModelRef) -> str:
    """The logged model behind a registered version."""
    version = of(place).get_model_version(registered_name(place.lineage, ref.role), number_of(place, ref))
    match = _MODEL_ID.fullmatch(version.source)
    if match is None:
        raise ValueError(f"{model_uri(place.lineage, ref)} has the source {version.source!r}, not a logged model")
    return match[1]


def log_consumed(place: Place, run_id: str, refs: Sequence[ModelRef]) -> None:
    """Record the versions that a run read, as its inputs and as tags that can be searched."""
    log_model_inputs(place, run_id, [model_id(place, ref) for ref in refs])
    set_tags(place, run_id, {CONSUMED_TAGS[ref.role]: model_uri(place.lineage, ref) for ref in refs})


def set_alias(place: Place, ref: ModelRef, alias: str) -> None:
    """Point an alias at a version. MLflow keeps "latest" and "v1", "v2", ... for itself."""
    if _RESERVED_ALIAS.fullmatch(alias):
        raise ValueError(f"alias {alias!r} is reserved by MLflow; take a word such as 'current' or 'champion'")
    of(place).set_registered_model_alias(registered_name(place.lineage, ref.role), alias, number_of(place, ref))


def tag_version(place: Place, ref: ModelRef, tags: Mapping[str, str]) -> None:
    """Add tags to a registered version."""
    client, name, number = of(place), registered_name(place.lineage, ref.role), number_of(place, ref)
    for key, value in tags.items():
        client.set_model_version_tag(name, number, key, value)


def alias_version(place: Place, role: Role, alias: str) -> str | None:
    """The version that an alias points at, None when there is none."""
    held = [info.version for info in versions(Path(place.root), place.lineage, role) if alias in info.aliases]
    return str(held[0]) if held else None


def versions(root: Path, lineage: str, role: Role) -> list[VersionInfo]:
    """The registered versions of a lineage's policy, reward model or critic, oldest first."""
    client = client_of(root)
    name = registered_name(lineage, role)
    aliases: dict[str, list[str]] = {}
    for model in client.search_registered_models(f"name = '{name}'"):
        for alias, version in model.aliases.items():
            aliases.setdefault(str(version), []).append(alias)
    found = [
        VersionInfo(
            version=int(version.version),
            iteration=int(version.tags.get("grpo.iteration", -1)),
            tags=dict(version.tags),
            aliases=tuple(sorted(aliases.get(str(version.version), []))),
        )
        for version in client.search_model_versions(f"name = '{name}'")
    ]
    return sorted(found, key=lambda info: info.version)
