"""The manifest: what a committed folder holds and what it was made from."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError, field_validator

from storage import files, working_copy
from storage.digests import digest_of_parts, sha256_of_file
from storage.errors import CorruptArtifact, ProvenanceMismatch, UnknownFormat
from storage.refs import Frozen, mistakes

MANIFEST = "manifest.json"
FORMAT = 1

Json = dict[str, Any]


class Provenance(Frozen):
    """What determines a stage's output: inputs by digest, the settings it reads, the seed.

    Model versions and times are not part of it: they name the output, they do not determine it.
    """

    stage: str
    inputs: dict[str, str]
    config: Json = {}
    seed: int | None = None


class Part(Frozen):
    """One file of a committed folder: name relative to the folder, size in bytes, sha256 in hex."""

    name: str
    size: int
    sha256: str

    @field_validator("name")
    @classmethod
    def _name_stays_in_its_folder(cls, name: str) -> str:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"the part {name!r} leads out of its folder")
        return name


class Code(Frozen):
    """The code that wrote the folder: recorded, not compared (see ``Manifest.require``)."""

    version: str
    commit: str
    """Git commit, 40 hex digits, "-dirty" behind it when the work tree had changes; or "unknown"."""


class Manifest(Frozen):
    """Written last into a folder; a folder without one never happened."""

    format: int = FORMAT
    provenance: Provenance
    code: Code
    created_at: str
    """UTC, ISO 8601 with microseconds, so that strings sort like times."""
    digest: str
    parts: tuple[Part, ...]
    num_rows: int | None = None
    schema_version: int | None = None
    metrics: dict[str, float] = {}
    repaired_rows: tuple[int, ...] = ()
    """Positions of the rows of a table whose text was not valid UTF-8 and was repaired."""
    pruned: bool = False

    def require(self, provenance: Provenance, folder: Path) -> None:
        """ProvenanceMismatch naming every difference between what stands here and what is asked for.

        The code version is recorded but not compared: a finished stage is a fact that later code may build on, and a
        lineage must outlive an upgrade.
        """
        here, asked = self.provenance.model_dump(mode="json"), provenance.model_dump(mode="json")
        if here != asked:
            lines = "\n".join(f"  {line}" for line in differences(here, asked))
            raise ProvenanceMismatch(
                f"{folder} was made from something else than this run asks for:\n{lines}\n"
                "Run with the settings it was made with, start another lineage (--lineage NAME), or, when its inputs had "
                f"to be rebuilt, delete {folder} so that it is made anew."
            )

    def broken_parts(self, folder: Path) -> list[str]:
        """Parts that are missing or have another size than was committed (cheap: no bytes are read).

        In the working copy of an object store they are fetched first, here and in ``verify``.
        """
        working_copy.fetch_missing(folder, self.parts)
        broken = []
        for part in self.parts:
            path = folder / part.name
            size = path.stat().st_size if path.is_file() else None
            if size != part.size:
                broken.append(
                    f"{part.name} has {'no file' if size is None else f'{size} bytes'}, {part.size} committed"
                )
        return broken

    def verify(self, folder: Path) -> None:
        """Read every part and compare its sha256; CorruptArtifact names the first that differs."""
        working_copy.fetch_missing(folder, self.parts)
        for part in self.parts:
            path = folder / part.name
            if not path.is_file():
                raise CorruptArtifact(f"{path} is missing; {_cure(folder)}")
            if folder.resolve() not in path.resolve().parents:
                raise CorruptArtifact(f"{path} is a link that leads out of its folder; {_cure(folder)}")
            if (found := sha256_of_file(path)) != part.sha256:
                raise CorruptArtifact(f"{path} has sha256 {found}, {part.sha256} was committed; {_cure(folder)}")


def _cure(folder: Path) -> str:
    return f"restore the file from a copy, or delete {folder} and run again to rebuild it from its inputs"


def differences(here: Any, asked: Any, path: str = "") -> list[str]:
    """Lines "key: recorded X, asked Y" for every leaf at which two JSON values differ; lists of one length by position."""
    if isinstance(here, dict) and isinstance(asked, dict):
        lines = []
        for key in sorted(here.keys() | asked.keys()):
            inner = f"{path}.{key}" if path else key
            if key not in here:
                lines.append(f"{inner}: recorded nothing, asked {asked[key]!r}")
            elif key not in asked:
                lines.append(f"{inner}: recorded {here[key]!r}, asked nothing")
            else:
                lines.extend(differences(here[key], asked[key], inner))
        return lines
    if isinstance(here, list) and isinstance(asked, list) and len(here) == len(asked):
        pairs = enumerate(zip(here, asked, strict=True))
        return [line for index, (old, new) in pairs for line in differences(old, new, f"{path}[{index}]")]
    return [] if here == asked else [f"{path}: recorded {here!r}, asked {asked!r}"]


@cache
def code() -> Code:
    """Version and git commit of the code that runs, "unknown" where there is none."""
    try:
        package = version("iterative-grpo")
    except PackageNotFoundError:
        package = "unknown"
    root = Path(__file__).resolve().parent.parent
    describe = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git on this machine, as in a container image
        commit = ""
    return Code(version=package, commit=commit or "unknown")


def utc_now() -> str:
    """The time in UTC with fixed precision."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def describe_parts(folder: Path) -> tuple[Part, ...]:
    """Every file below ``folder``, sorted by name.

    Raises:
        ValueError: there is none, one is a link (its bytes are elsewhere and can change), or one has the manifest's name.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if not paths:
        raise ValueError(f"the stage wrote no file into {folder}; an empty stage is not committed")
    for path in paths:
        if path.is_symlink() or path == folder / MANIFEST:
            raise ValueError(f"the stage wrote {path}; links and {MANIFEST} can not be committed, write plain files")
    with ThreadPoolExecutor() as pool:  # a checkpoint has two large files, and sha256 leaves the interpreter to others
        sums = pool.map(sha256_of_file, paths)
        return tuple(
            Part(name=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=sha256)
            for path, sha256 in zip(paths, sums, strict=True)
        )


def digest_of(parts: tuple[Part, ...]) -> str:
    return digest_of_parts((part.name, part.sha256) for part in parts)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a committed folder, None when there is none.

    Raises:
        CorruptArtifact: it can not be read, or its digest is not that of its parts.
        UnknownFormat: it is whole, but written by code with another layout (which must not look like damage: what is
            damaged is rebuilt).
    """
    path = folder / MANIFEST
    working_copy.fetch_manifest(folder)
    if not path.is_file():
        return None
    fields = files.read_json(path, cure=_cure(folder))
    if isinstance(number := fields.get("format"), int) and number != FORMAT:
        raise UnknownFormat(f"{path} has format {number}, this code reads {FORMAT}; use the version that wrote it")
    try:
        manifest = Manifest.model_validate(fields)
    except ValidationError as error:
        raise CorruptArtifact(f"{path} is not a manifest: {mistakes(error)}; {_cure(folder)}") from error
    if (found := digest_of(manifest.parts)) != manifest.digest:
        raise CorruptArtifact(f"{path} lists parts of digest {found} and says {manifest.digest}; {_cure(folder)}")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write (or replace, in one step) the manifest of a folder."""
    text = json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"
    files.write_atomic(folder / MANIFEST, text.encode())


def created_at(folder: Path) -> str:
    """When a committed folder was committed (UTC, ISO 8601)."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise CorruptArtifact(f"{folder} holds nothing committed; {_cure(folder)}")
    return manifest.created_at
