"""The model registry: a version per iteration, its files hard links to the store's, registered exactly once."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from storage.checkpoints import TRAINER_FOLDER, open_folder
from storage.files import fsync_tree
from storage.manifest import MANIFEST
from storage.mlflow_client import client as client_of
from storage.mlflow_client import local_path, of
from storage.refs import Frozen, ModelRef, Place, Role
from storage.tracking import KEY, ensure_experiment, log_model_inputs, run_key, set_tags

_MODEL_ID = re.compile(r"models:/(m-[0-9a-f]+)")
_RESERVED_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)
_CAN_NOT_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES}
_MODEL_TYPES: dict[Role, str] = {"policy": "policy", "reward": "reward-model", "critic": "critic"}
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
    """The registered version of this iteration's model; found again by key however often this is repeated.

    A crash anywhere leaves a state from which a repeat converges to one logged model and one version. The key names
    the bytes too: a model that had to be rebuilt and came out differently gets a version of its own, never the files
    of the one before.
    """
    client = of(place)
    key = f"{run_key(place)}/{ref.role}/{ref.digest[:16]}"
    tags = {
        **tags,
        KEY: key,
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
            tags=tags,
            description=description,
            await_creation_for=0,
        )
        versions = client.search_model_versions(query)  # a lost answer makes the client create twice
    kept = min(versions, key=lambda version: int(version.version))
    for twin in versions:
        if twin.version != kept.version:
            client.delete_model_version(name, twin.version)
    return ref.model_copy(update={"version": str(kept.version)})


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
    link_files(open_folder(ref), local_path(model.artifact_location))
    if model.status != LoggedModelStatus.READY:
        model = client.finalize_logged_model(model.model_id, "READY")
    _ensure_output(client, run_id, model.model_id, place.iteration)
    return model


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


def link_files(source: Path, target: Path) -> None:
    """Give ``target`` the model's files without a second copy of their bytes (copied only across file systems).

    The trainer's state and the manifest stay in the store: who loads the model does not need them. A file that is
    already the store's own is left alone, so that repeating this never disturbs a reader.
    """
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_dir() or relative.parts[0] in (TRAINER_FOLDER, MANIFEST):
            continue
        link = target / relative
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.exists() and link.samefile(path):
            continue
        link.unlink(missing_ok=True)  # of an earlier, unfinished registration
        _link_or_copy(path, link)
    fsync_tree(target)


def _link_or_copy(path: Path, link: Path) -> None:
    try:
        os.link(path, link)
    except OSError as error:
        if error.errno not in _CAN_NOT_LINK:
            raise
        shutil.copyfile(path, link)
    link.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)  # a server may run under another user


def model_id(place: Place, ref: ModelRef) -> str:
    """The logged model behind a registered version."""
    version = of(place).get_model_version(registered_name(place.lineage, ref.role), ref.version)
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
    of(place).set_registered_model_alias(registered_name(place.lineage, ref.role), alias, ref.version)


def tag_version(place: Place, ref: ModelRef, tags: Mapping[str, str]) -> None:
    """Add tags to a registered version."""
    client, name = of(place), registered_name(place.lineage, ref.role)
    for key, value in tags.items():
        client.set_model_version_tag(name, ref.version, key, value)


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
