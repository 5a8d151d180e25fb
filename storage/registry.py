"""The model registry: a version per iteration, its files hard links to the store's, registered exactly once."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from storage.checkpoints import TRAINER_FOLDER, open_folder
from storage.files import fsync_tree
from storage.manifest import MANIFEST
from storage.mlflow_client import client as client_of
from storage.mlflow_client import escaped, of
from storage.refs import Frozen, ModelRef, Place, Role
from storage.tracking import KEY, ensure_experiment, run_key

_MODEL_ID = re.compile(r"models:/(m-[0-9a-f]+)")


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

    A crash anywhere leaves a state from which a repeat converges to one logged model and one version.
    """
    client = of(place)
    key = f"{run_key(place)}/{ref.role}"
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
    query = f"name = '{escaped(name)}' and tags.`{KEY}` = '{escaped(key)}'"
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
    from mlflow.entities import LoggedModelOutput

    client, experiment = of(place), ensure_experiment(place)
    found = _logged_models(client, experiment, key)
    if not found:
        client.create_logged_model(
            experiment,
            name=f"{ref.role}-{place.iteration:04d}",
            source_run_id=run_id,
            tags=dict(tags),
            model_type="policy" if ref.role == "policy" else "reward-model",
        )
        found = _logged_models(client, experiment, key)
    model = found[0]
    for twin in found[1:]:
        client.delete_logged_model(twin.model_id)
    if str(model.status) not in ("READY", "LoggedModelStatus.READY"):
        link_files(open_folder(ref), _local_path(model.artifact_location))
        model = client.finalize_logged_model(model.model_id, "READY")
    outputs = client.get_run(run_id).outputs
    if model.model_id not in {output.model_id for output in (outputs.model_outputs if outputs else [])}:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, place.iteration)])
    return model


def _logged_models(client: Any, experiment: str, key: str) -> list[Any]:
    found = client.search_logged_models([experiment], filter_string=f"tags.`{KEY}` = '{escaped(key)}'")
    return sorted(found, key=lambda model: (model.creation_timestamp, model.model_id))


def link_files(source: Path, target: Path) -> None:
    """Give ``target`` the model's files without a second copy of their bytes (copied only across file systems).

    The trainer's state and the manifest stay in the store: who loads the model does not need them.
    """
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_dir() or relative.parts[0] in (TRAINER_FOLDER, MANIFEST):
            continue
        link = target / relative
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)  # of an earlier, unfinished registration
        try:
            os.link(path, link)
        except OSError:
            shutil.copyfile(path, link)
    fsync_tree(target)


def _local_path(location: str) -> Path:
    parsed = urlparse(location)
    if parsed.scheme not in ("", "file"):
        raise ValueError(f"the experiment keeps its models at {location}, which is not a local folder")
    return Path(unquote(parsed.path))


def model_id(place: Place, ref: ModelRef) -> str:
    """The logged model behind a registered version."""
    version = of(place).get_model_version(registered_name(place.lineage, ref.role), ref.version)
    match = _MODEL_ID.fullmatch(version.source)
    if match is None:
        raise ValueError(f"{model_uri(place.lineage, ref)} has the source {version.source!r}, not a logged model")
    return match[1]


def set_alias(place: Place, ref: ModelRef, alias: str) -> None:
    of(place).set_registered_model_alias(registered_name(place.lineage, ref.role), alias, ref.version)


def versions(root: Path, lineage: str, role: Role) -> list[VersionInfo]:
    """The registered versions of a lineage's policy or reward model, oldest first."""
    client = client_of(root)
    name = registered_name(lineage, role)
    models = client.search_registered_models(f"name = '{escaped(name)}'")
    aliases: dict[str, list[str]] = {}
    for model in models:
        for alias, version in model.aliases.items():
            aliases.setdefault(str(version), []).append(alias)
    found = [
        VersionInfo(
            version=int(version.version),
            iteration=int(version.tags.get("grpo.iteration", -1)),
            tags=dict(version.tags),
            aliases=tuple(sorted(aliases.get(str(version.version), []))),
        )
        for version in client.search_model_versions(f"name = '{escaped(name)}'")
    ]
    return sorted(found, key=lambda info: info.version)
