"""The finished iterations of a lineage: an iteration counts from the commit of its record on."""

import json
import logging
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from storage import commits, files, locations, tracking_copy
from storage.errors import CorruptArtifact, UnknownFormat
from storage.lineages import first_iteration
from storage.manifest import MANIFEST, Provenance, read_manifest
from storage.migrations import RECORD_STEPS, brought_forward, newest_format
from storage.refs import DatasetRef, Frozen, ModelRef, Place, iteration_name, mistakes

log = logging.getLogger(__name__)

RECORD = "record"
RECORD_FILE = "record.json"


class IterationRecord(Frozen):
    """The last commit of an iteration: an iteration without it is unfinished."""

    iteration: int
    policy: ModelRef
    reference: ModelRef
    reward: ModelRef
    """The reward model that the next iteration is scored with: this iteration's, or the last good one when this iteration's
    was refused; the one that scored this iteration belongs to the record before."""
    champion: ModelRef
    tables: dict[str, DatasetRef]
    metrics: dict[str, float]
    seconds: float
    """Wall time of the process that finished the iteration; a resumed iteration counts only its last part."""
    promotion: str = ""
    """Why the champion moved or stayed."""
    alarm: str = ""
    """What the over-optimisation alarm says while it stands: its evidence and the cure; "" when it does not."""
    best_iteration: int | None = None
    """The iteration with the highest held-out accuracy so far; None in records from before this was kept."""
    reward_promotion: str = ""
    """Why the retrained reward model took the last good one's place, or did not."""
    refused_reward: ModelRef | None = None
    """The retrained reward model, kept and registered but not gone on with; None when it was not refused."""
    critic: ModelRef | None = None
    """The critic after the iteration; None for algorithms without one."""
    guards: tuple[str, ...] = ()
    """The evidence of every guard that was passed in the iteration."""
    rolled_back_to: ModelRef | None = None
    """The policy that the next iteration starts from, where that is not this iteration's."""
    outcome: Literal["updated", "no_signal"] = "updated"
    """"no_signal": no step had anything to learn from, and the policy is the one before."""

    @property
    def start(self) -> ModelRef:
        """The policy that the next iteration starts from; its reference too."""
        return self.rolled_back_to or self.policy


def publish_record(place: Place, record: IterationRecord, scored_by: ModelRef) -> IterationRecord:
    """Commit the record: from here on the iteration is finished.

    A record that an interrupted run left whole is given back as it stands, a damaged one is moved aside and made again.

    Raises:
        ProvenanceMismatch: the iteration was recorded with other results.
    """
    folder = place.folder(RECORD)
    inputs = {"policy": record.policy.digest, "reward": record.reward.digest, "scored_by": scored_by.digest}
    if record.critic is not None:
        inputs["critic"] = record.critic.digest
    if record.refused_reward is not None:
        inputs["refused_reward"] = record.refused_reward.digest
    inputs |= {name: ref.digest for name, ref in record.tables.items()}
    provenance = Provenance(stage=RECORD, inputs=inputs)
    if commits.find(place, folder, provenance):
        try:
            return read_record(folder, record.iteration) or record
        except CorruptArtifact as error:
            commits.set_aside(place, folder, str(error))

    def write(aside: Path) -> None:
        fields = locations.stored(record.model_dump(mode="json"), Path(place.root))
        text = json.dumps({"format": newest_format(RECORD_STEPS), **fields}, indent=1, ensure_ascii=False)
        (aside / RECORD_FILE).write_text(text + "\n", encoding="utf-8")

    tracking_copy.send_database(Path(place.root))  # it knows the versions that the record names
    commits.publish(place, folder, write, provenance, metrics=record.metrics)
    return record


def find_record(place: Place) -> IterationRecord | None:
    """The record of this iteration when it is finished and everything it names is whole, else None."""
    for record in records(Path(place.root), place.lineage):
        if record.iteration == place.iteration:
            return None if damage_of(record) else record
    return None


def records(root: Path, lineage: str) -> list[IterationRecord]:
    """The records of a lineage in order, from its first iteration (0; of a branch, the one it was branched from) to the first
    that is missing or damaged.

    What comes after such an iteration was built on something that is not known any more; it does not count, and a
    warning says so.
    """
    found: list[IterationRecord] = []
    reason = "it has no record"
    number = first_iteration(root, lineage)
    try:
        while record := read_record(root / lineage / iteration_name(number) / RECORD, number):
            found.append(record)
            number += 1
    except CorruptArtifact as error:
        reason = str(error)
    num_committed = len(list((root / lineage).glob(f"iteration-[0-9]*/{RECORD}/{MANIFEST}")))
    if num_committed > len(found):
        log.warning("iteration %d of %s does not count, nor what came after: %s", number, lineage, reason)
    return found


def latest_record(root: Path, lineage: str) -> IterationRecord | None:
    """The newest finished iteration whose models and tables are there to go on from, None when there is none.

    Sizes and digests of the manifests are compared; the bytes are read, and compared, when they are opened.
    """
    for record in reversed(records(root, lineage)):
        if not (damage := damage_of(record)):
            return record
        log.warning("iteration %d of %s can not be gone on from: %s", record.iteration, lineage, damage)
    return None


def read_record(folder: Path, iteration: int) -> IterationRecord | None:
    """The record in a committed folder, of an older format too, None when there is none.

    Raises:
        CorruptArtifact: its bytes are not those that were committed, or it is of another iteration.
        UnknownFormat: a later version wrote it. OutsideStore: it names what is not in the store.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    manifest.verify(folder)
    path = folder / RECORD_FILE
    fields = brought_forward(files.read_json(path, cure="restore it from a copy"), RECORD_STEPS, path)
    fields = locations.opened(fields, folder.parents[2])
    try:
        record = IterationRecord.model_validate(fields)
    except ValidationError as error:  # its bytes are those that were committed
        raise UnknownFormat(
            f"{folder} was written by another version of iterative-grpo; use that one ({mistakes(error)})"
        ) from error
    if record.iteration != iteration:
        raise CorruptArtifact(f"{folder} holds the record of iteration {record.iteration}")
    return record


def damage_of(record: IterationRecord) -> str:
    """What keeps the next iteration from starting here, "" when nothing does."""
    needed: list[ModelRef | DatasetRef] = [record.policy, record.start, record.reward, *record.tables.values()]
    if record.critic is not None:
        needed.append(record.critic)
    for ref in needed:
        folder = Path(ref.uri)
        try:
            manifest = read_manifest(folder)
        except CorruptArtifact as error:
            return str(error)
        if manifest is None or manifest.digest != ref.digest:
            return f"{folder} does not hold what the record names"
        if manifest.pruned:
            return f"the weights of {folder} were removed"
        if broken := manifest.broken_parts(folder):
            return f"{folder} is damaged: {'; '.join(broken)}"
    return ""
