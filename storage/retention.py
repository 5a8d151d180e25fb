"""What `igrpo gc` may remove of a lineage: a plan, with the reason for everything that stays and everything that goes.

Only weights go (of policies, reward models and critics), and what was moved aside as damaged or left unfinished. Tables,
records, manifests, decisions and recipes are never part of it: every lineage still reads.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from storage import decisions, delivery, iterations, lineages, registry
from storage.errors import StorageError
from storage.files import ASIDE, QUARANTINE
from storage.iterations import IterationRecord
from storage.manifest import read_manifest
from storage.mlflow_client import is_untouched, tracking_uri
from storage.refs import Frozen, ModelRef, Role, iteration_name
from storage.verification import committed_folders, refs_of

OWN_ALIASES = ("current", "champion")
WHAT = {"policy": "a policy", "reward": "a reward model", "critic": "a critic"}


class Kept(Frozen):
    """A checkpoint that stays: its folder from the root on, and every reason why."""

    name: str
    reasons: tuple[str, ...]


class Removed(Frozen):
    """What goes: its folder from the root on, the bytes of its files, and why it is not needed."""

    name: str
    num_bytes: int
    reason: str


class Plan(Frozen):
    """What stays and what goes of one lineage; every checkpoint that still has its weights stands in one of the two."""

    lineage: str
    kept: tuple[Kept, ...]
    removed: tuple[Removed, ...]


def plan(root: Path, lineage: str, keep_last: int) -> Plan:
    """The plan for a lineage as it stands now.

    Args:
        keep_last: newest finished iterations whose models all stay, at least 1.

    Raises:
        StorageError: a record, decision or manifest can not be read, or MLflow not asked for the aliases that people gave:
            what is needed is not known, so nothing may go.
    """
    root = root.resolve()
    records = iterations.records(root, lineage)
    whole = {folder: role for folder in committed_folders(root / lineage) if (role := _weights_role(folder))}
    if not records:
        needed = {folder: ["the lineage has no finished iteration yet"] for folder in whole}
    else:
        needed = _needed(root, lineage, records, keep_last)
        for folder in whole:
            if folder.relative_to(root / lineage).parts[0] >= iteration_name(records[-1].iteration + 1):
                needed.setdefault(folder, []).append("the unfinished iteration goes on from it")
    kept = [Kept(name=_name(root, each), reasons=tuple(needed[each])) for each in whole if each in needed]
    gone = [
        Removed(
            name=_name(root, each),
            num_bytes=_num_bytes(each),
            reason=f"{WHAT[role]} that the last {keep_last} iterations, the champion, aliases and branches do not need",
        )
        for each, role in whole.items()
        if each not in needed
    ]
    return Plan(lineage=lineage, kept=tuple(kept), removed=(*gone, *_leftovers(root, lineage)))


def _weights_role(folder: Path) -> str:
    manifest = read_manifest(folder)
    return folder.name if manifest is not None and folder.name in registry.ROLES and not manifest.pruned else ""


def _needed(root: Path, lineage: str, records: list[IterationRecord], keep_last: int) -> dict[Path, list[str]]:
    """Folder of a checkpoint -> the reasons why it stays."""
    needed: dict[Path, list[str]] = {}

    def keep(refs: Iterable[ModelRef | None], reason: str) -> None:
        for ref in refs:
            if ref is not None and reason not in needed.setdefault(Path(ref.uri), []):
                needed[Path(ref.uri)].append(reason)

    last = decisions.in_force(records[-1], decisions.decisions(root, lineage))
    keep([last.champion], "the champion")
    keep([last.start, last.reward, last.critic], "the next iteration starts from it")
    for record in records[-keep_last:]:
        models = [ref for ref in refs_of(record) if isinstance(ref, ModelRef)]
        keep(models, f"named by iteration {record.iteration}, one of the last {keep_last}")
    if last.best_iteration is not None:
        best = [each.policy for each in records if each.iteration == last.best_iteration]
        keep(best, "the best measured policy, which the over-optimisation alarm goes back to")
    if lineages.read_recipe(root, lineage).get("update", {}).get("rollout_policy") == "initial":
        keep([records[0].policy], "the first policy, which writes the completions (update.rollout_policy)")
    for role, version, alias in _aliases_of_people(root, lineage):
        keep(_of_version(records, role, version), f"alias {alias} (v{version})")
    for other, origin in _branches(root, lineage).items():
        keep([ref for ref in refs_of(origin) if isinstance(ref, ModelRef)], f"lineage {other} was branched from it")
    return needed


def _aliases_of_people(root: Path, lineage: str) -> list[tuple[Role, str, str]]:
    """(role, the store's number, alias) of the aliases that people gave in MLflow.

    "current" and "champion" are the loop's own: the records say where they point, whatever MLflow was told so far.

    Raises:
        StorageError: MLflow can not be asked, so it is not known what is needed.
    """
    if is_untouched(root):
        return []
    cure = f"which versions of {lineage!r} an alias needs is not known, so nothing may go; start MLflow (`igrpo ui`)"
    if reason := delivery.unreachable(tracking_uri(root)):
        raise StorageError(f"{reason}; {cure}")
    try:
        return [
            (role, version.tags.get(registry.VERSION_TAG, str(version.version)), alias)
            for role in registry.ROLES
            for version in registry.versions(root, lineage, role)
            for alias in version.aliases
            if alias not in OWN_ALIASES
        ]
    except Exception as error:
        raise StorageError(f"MLflow says {type(error).__name__}: {error}; {cure}") from error


def _of_version(records: list[IterationRecord], role: Role, version: str) -> list[ModelRef]:
    found = [ref for record in records for ref in refs_of(record) if isinstance(ref, ModelRef)]
    return [ref for ref in found if ref.role == role and ref.version == version]


def _branches(root: Path, lineage: str) -> Mapping[str, IterationRecord]:
    """Lineages that name something of this one -> their first record."""
    found = {}
    for other in lineages.list_lineages(root):
        if other == lineage:
            continue
        for record in iterations.records(root, other)[:1]:
            if any((root.resolve() / lineage) in Path(ref.uri).parents for ref in refs_of(record)):
                found[other] = record
    return found


def _leftovers(root: Path, lineage: str) -> list[Removed]:
    """What was moved aside as damaged, and what an interrupted write left."""
    whys = {QUARANTINE: "moved aside as damaged or given up", ASIDE: "left by an interrupted write"}
    found: list[Removed] = []
    for path in sorted((root / lineage).glob("**/.*")):
        for mark, why in whys.items():
            is_inner = any(part.startswith(".") for part in path.relative_to(root / lineage).parts[:-1])
            if path.name.startswith(mark) and not is_inner:
                found.append(Removed(name=_name(root, path), num_bytes=_num_bytes(path), reason=why))
    return found


def _num_bytes(path: Path) -> int:
    manifest = None if path.name.startswith(".") else read_manifest(path)
    if manifest is not None:
        return sum(part.size for part in manifest.parts)
    each = [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]
    return sum(file.stat().st_size for file in each if file.name != "manifest.json")


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
