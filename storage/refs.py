"""References: the only things that travel between stages."""

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

TableName = Literal[
    "prompts",
    "selection",
    "completions",
    "rewards",
    "samples",
    "pairs",
    "points",
    "step_labels",
    "mixed_pairs",
    "mixed_points",
    "mixed_step_labels",
    "evaluation",
]
Role = Literal["policy", "reward", "critic"]

LINEAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
SECTION_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class Frozen(BaseModel):
    """Immutable, and strict about unknown keys. A number that is not finite stays itself in JSON (NaN, not null)."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


def mistakes(error: ValidationError) -> str:
    """What pydantic found wrong, on one line."""
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in found)


class DatasetRef(Frozen):
    """A committed table. ``digest`` is sha256 over the names and sha256 of its parts, 64 hex digits."""

    uri: str
    digest: str
    table: TableName
    num_rows: int


class ModelRef(Frozen):
    """A committed checkpoint folder.

    ``version`` is the registered MLflow version as a decimal string, or "" for a checkpoint inside an iteration, which is
    not registered. Two refs with one digest hold the same bytes, whatever their version.
    """

    uri: str
    digest: str
    role: Role
    version: str = ""


class Place(Frozen):
    """Where a stage stands: store root, lineage, iteration (0 = bootstrap) and section ("step-002", "evaluation", ...).

    ``token`` is the fencing token of the lineage lock under which this run may commit.
    """

    root: str
    lineage: str
    token: int
    iteration: int = Field(default=0, ge=0)
    section: str = ""

    @field_validator("lineage")
    @classmethod
    def _lineage_is_a_plain_name(cls, name: str) -> str:
        return check_lineage_name(name)

    @field_validator("section")
    @classmethod
    def _section_is_a_plain_name(cls, section: str) -> str:
        if section and not SECTION_NAME.fullmatch(section):
            raise ValueError(f"section {section!r} is not lower-case letters, digits and dashes")
        return section

    def at(self, *, iteration: int, section: str = "") -> "Place":
        """The same lineage and token at another iteration and section."""
        return Place(root=self.root, lineage=self.lineage, token=self.token, iteration=iteration, section=section)

    @property
    def lineage_folder(self) -> Path:
        return Path(self.root) / self.lineage

    @property
    def log_folder(self) -> Path:
        """Where servers that this lineage's runs start write their logs; nothing is read back from there."""
        return self.lineage_folder / "logs"

    def folder(self, name: str) -> Path:
        """The folder of a stage's output at this place: ROOT/LINEAGE/iteration-0003/step-002/NAME."""
        base = self.lineage_folder / iteration_name(self.iteration)
        return (base / self.section if self.section else base) / name


def iteration_name(iteration: int) -> str:
    """The folder of an iteration inside its lineage."""
    return f"iteration-{iteration:04d}"


def check_lineage_name(name: str) -> str:
    """The name itself, or ValueError: a lineage is a folder, an MLflow experiment and a model name at once."""
    if not LINEAGE_NAME.fullmatch(name):
        raise ValueError(
            f"lineage name {name!r} is not usable: take 1 to 64 letters, digits, '-' or '_', beginning with a letter or digit"
        )
    return name
