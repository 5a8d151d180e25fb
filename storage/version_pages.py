"""A version's page in MLflow, drawn from the version's tags: its sentence, the strip, where it came from, what used it."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage import lineage_pages, registry, tracking
from storage.mlflow_client import of
from storage.refs import ModelRef, Place, Role

SENTENCE = "grpo.sentence"
DATASETS = "grpo.datasets"
PARENTS = ("parent", "reference", "reward_model", "critic")
"""Relations of a version to another one: the tag grpo.RELATION holds its models:/NAME/VERSION."""
MEASURED = "grpo.evaluation.reward-v"
"""Tag of a policy version, with a reward model's version behind it: what that one measured outside of the iteration."""
DECISIONS = {
    "grpo.champion": "became champion",
    "grpo.promotion": "champion's gate",
    "grpo.promote": "promoted by hand",
    "grpo.rollback": "gone back to by hand",
    "grpo.rolled_back_to": "next iteration starts from",
    "grpo.guards": "guards",
    "grpo.alarm": "alarm",
    "grpo.reward_promotion": "anchor set",
    "grpo.refused": "refused",
    registry.WEIGHTS_TAG: "weights",
}
"""Tag of a version -> the row of its page that shows it."""
STEP_TABLES = {"completions": "rollouts", "rewards": "rewards", "samples": "samples"}
"""Tables that every step of an iteration has -> the row that leads to all of them."""
ROWS = {
    "reward_training": "reward and replay data",
    "evaluation": "evaluation",
    "prompts": "prompts",
    "labels": "labels",
}
"""Tables of a whole iteration -> their rows; where a page gets too long, the last ones are left out first."""

_MODEL = re.compile(r"models:/(?P<name>.+)/(?P<version>\d+)")
_VERSION = re.compile(r"\{version:(?P<role>[a-z]+):(?P<version>\d+)\}")


def tag_of(datasets: Mapping[str, tuple[str, int]]) -> str:
    """The tag ``DATASETS``: name:digest:rows of each table, name -> (sha256 in hex, rows)."""
    each = sorted(datasets.items())
    return ",".join(f"{name}:{digest[: tracking.DIGEST_CHARACTERS]}:{rows}" for name, (digest, rows) in each)


def placeholder(role: Role, version: str) -> str:
    """Stands in a strip for MLflow's own number of a version of the store, which only MLflow knows."""
    return f"{{version:{role}:{version}}}"


def draw(place: Place, ref: ModelRef, *, strip: str, pictures: Mapping[str, str]) -> None:
    """Write a version's description from its tags, and the strip's pictures (path -> SVG) beside its iteration's run.

    Args:
        strip: HTML in which {experiment}, {run} and ``placeholder`` stand for what only MLflow knows; "" keeps the strip
            that the page has.

    Raises:
        StorageError: MLflow has no such version, or its iteration no run.
    """
    client, name, number = of(place), registry.registered_name(place.lineage, ref.role), registry.number_of(place, ref)
    version = client.get_model_version(name, number)
    own = place.at(iteration=int(version.tags.get("grpo.iteration", place.iteration)))
    run, experiment = tracking.run_of(own), tracking.ensure_experiment(own)
    if pictures:
        _show(client, run, pictures)
    described = str(version.description or "")
    numbers = _numbers(place)
    strip = _VERSION.sub(lambda match: numbers.get((match["role"], match["version"]), match["version"]), strip)
    strip = strip.replace("{experiment}", experiment).replace("{run}", run) or lineage_pages.strip_in(described)
    uri = registry.model_uri(place.lineage, ref)
    used_by = lineage_pages.search_link(experiment, f"tags.`{registry.CONSUMED_TAGS[ref.role]}` = '{uri}'")
    sentence = version.tags.get(SENTENCE) or described.partition("\n")[0]
    rows = {
        **_parent_rows(place, version.tags, numbers),
        "run": f"[iteration {own.iteration}]({lineage_pages.run_link(experiment, run)})",
        **_said_rows(version.tags),
        **_table_rows(own, version.tags, experiment),
    }
    client.update_model_version(name, number, description=lineage_pages.describe(sentence, rows, used_by, strip))


def _show(client: Any, run: str, pictures: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path, svg in pictures.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(svg, encoding="utf-8")
        client.log_artifacts(run, folder)  # one call for all of them


def _numbers(place: Place) -> dict[tuple[str, str], str]:
    """(role, the store's number) -> MLflow's own number of the version."""
    return {
        (role, info.tags.get(registry.VERSION_TAG, str(info.version))): str(info.version)
        for role in registry.ROLES
        for info in registry.versions(Path(place.root), place.lineage, role)
    }


def _parent_rows(place: Place, tags: Mapping[str, str], numbers: Mapping[tuple[str, str], str]) -> dict[str, str]:
    rows = {}
    for relation in PARENTS:
        if (match := _MODEL.fullmatch(tags.get(f"grpo.{relation}", ""))) is not None:
            lineage, _, role = match["name"].rpartition("-")
            number = numbers.get((role, match["version"])) if lineage == place.lineage else None
            link = lineage_pages.version_link(match["name"], number or match["version"])
            rows[relation.replace("_", " ")] = f"[{match['name']} v{match['version']}]({link})"
    return rows


def _said_rows(tags: Mapping[str, str]) -> dict[str, str]:
    """What was decided and measured since, each from its tag."""
    said = {tag: tags[tag] for tag in DECISIONS if tags.get(tag)}
    if said.get("grpo.champion", "").endswith(f": {said.get('grpo.promotion')}"):
        del said["grpo.promotion"]  # the champion's row says it already
    rows = {DECISIONS[tag]: lineage_pages.cell(text) for tag, text in said.items()}
    measured = sorted(tag for tag in tags if tag.startswith(MEASURED))
    return rows | {
        f"with reward model v{tag.removeprefix(MEASURED)}": lineage_pages.cell(tags[tag]) for tag in measured
    }


def _table_rows(place: Place, tags: Mapping[str, str], experiment: str) -> dict[str, str]:
    tables = lineage_pages.tables_of(tags.get(DATASETS, ""))
    rows: dict[str, str] = {}
    for prefix, what in STEP_TABLES.items():
        of_steps = [table for name, table in tables.items() if name.startswith(f"{prefix}_")]
        if of_steps:
            query = f"tags.`grpo.iteration` = '{place.iteration}' and dataset.context LIKE '{prefix}_%'"
            rows[what] = lineage_pages.tables_link(of_steps, lineage_pages.run_search_link(experiment, query))
    whole = {name: table for name, table in tables.items() if name.rpartition("_")[0] not in STEP_TABLES}
    for name in sorted(whole, key=lambda name: (list(ROWS).index(name) if name in ROWS else len(ROWS), name)):
        query = f"dataset.digest = '{whole[name].digest}'"
        link = lineage_pages.run_search_link(experiment, query)
        rows[ROWS.get(name, name.replace("_", " "))] = lineage_pages.tables_link([whole[name]], link)
    return rows
