"""What people decided about a lineage by hand: who, when, why, and from which iteration on it holds."""

import json
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from storage import files, locations, working_copy
from storage.errors import CorruptArtifact, StorageError
from storage.iterations import IterationRecord
from storage.lock import require_token
from storage.manifest import utc_now
from storage.migrations import DECISION_STEPS, brought_forward, newest_format
from storage.refs import DatasetRef, Frozen, ModelRef, Place, iteration_name, mistakes

FOLDER = "decisions"
CURE = "restore it from a copy, or delete it to take the decision back"


class Decision(Frozen):
    """One decision; it counts from the end of iteration ``after_iteration`` on."""

    kind: Literal["promote", "rollback", "reward"]
    """promote: ``policy`` is the champion. rollback: it is also what the next iteration starts from. reward: ``reward`` is the
    reward model that the next iteration is scored with; ``policy`` stays what it was."""
    policy: ModelRef
    evaluation: DatasetRef
    """The held-out evaluation of ``policy``, which the next candidates are compared with."""
    reward: ModelRef | None = None
    """The reward model of a decision of kind "reward"."""
    after_iteration: int = Field(ge=0)
    why: str = Field(min_length=1)
    by: str = Field(min_length=1)
    at: str
    """UTC."""

    @property
    def sentence(self) -> str:
        if self.reward is not None:
            return f"reward model v{self.reward.version} taken by {self.by} at {self.at}: {self.why}"
        verb = "made champion" if self.kind == "promote" else "gone back to"
        return f"policy v{self.policy.version} {verb} by {self.by} at {self.at}: {self.why}"


def decisions(root: Path, lineage: str) -> list[Decision]:
    """All of them, in the order in which they were taken.

    Raises:
        CorruptArtifact: a file is not a decision; names it. UnknownFormat: it is of a later version.
        OutsideStore: it names what is not in the store.
    """
    found = []
    for path in sorted((root / lineage / FOLDER).glob("[0-9]*.json")):
        fields = brought_forward(files.read_json(path, cure=CURE), DECISION_STEPS, path)
        fields = locations.opened(fields, root)
        try:
            found.append(Decision.model_validate(fields))
        except ValidationError as error:
            raise CorruptArtifact(f"{path} is not a decision: {mistakes(error)}; {CURE}") from error
    return found


def take(
    place: Place,
    kind: Literal["promote", "rollback"],
    chosen: IterationRecord,
    last: IterationRecord,
    why: str,
    by: str,
) -> Decision:
    """Write the decision for the policy of iteration ``chosen``, to hold after iteration ``last``.

    A rollback moves what an unfinished iteration has made out of the way first: it was made from another policy.

    Raises:
        LostLock: another run took the lineage; nothing was written.
    """
    require_token(place)
    decision = Decision(
        kind=kind,
        policy=chosen.policy,
        evaluation=chosen.tables["evaluation"],
        after_iteration=last.iteration,
        why=why,
        by=by,
        at=utc_now(),
    )
    if kind == "rollback" and (unfinished := _unfinished(place, last)):
        working_copy.forget(unfinished)
        files.quarantine(unfinished)
    return _write(place, decision)


def take_reward(place: Place, reward: ModelRef, last: IterationRecord, why: str, by: str) -> Decision:
    """Write that ``reward`` scores what comes after iteration ``last``.

    Raises:
        LostLock: another run took the lineage; nothing was written.
        StorageError: the next iteration has begun with the reward model that there was.
    """
    require_token(place)
    require_between_iterations(place, last)
    decision = Decision(
        kind="reward",
        policy=last.champion,
        evaluation=last.tables["champion_evaluation"],
        reward=reward,
        after_iteration=last.iteration,
        why=why,
        by=by,
        at=utc_now(),
    )
    return _write(place, decision)


def require_between_iterations(place: Place, last: IterationRecord) -> None:
    """StorageError when the iteration after ``last`` is under way: it was begun with the reward model that there was."""
    if _unfinished(place, last):
        raise StorageError(
            f"iteration {last.iteration + 1} of {place.lineage!r} was interrupted; let a run finish it (igrpo run, or the "
            "deployment `iterate`), or go back with igrpo rollback, before its reward model is changed"
        )


def _unfinished(place: Place, last: IterationRecord) -> Path | None:
    folder = place.lineage_folder / iteration_name(last.iteration + 1)
    return folder if folder.exists() else None


def _write(place: Place, decision: Decision) -> Decision:
    number = len(list((place.lineage_folder / FOLDER).glob("[0-9]*.json"))) + 1
    folder = place.lineage_folder / FOLDER
    files.make_folder(folder)
    fields = locations.stored(decision.model_dump(mode="json"), Path(place.root))
    text = json.dumps({"format": newest_format(DECISION_STEPS), **fields}, indent=1, ensure_ascii=False) + "\n"
    path = folder / f"{number:04d}.json"
    files.write_atomic(path, text.encode())
    working_copy.send_file(path)
    return decision


def in_force(record: IterationRecord, taken: list[Decision]) -> IterationRecord:
    """The newest record as the next iteration has to see it: with what was decided by hand since."""
    for decision in taken:
        if decision.after_iteration != record.iteration:
            continue
        if decision.reward is not None:
            record = record.model_copy(update={"reward": decision.reward, "reward_promotion": decision.sentence})
            continue
        changes: dict[str, object] = {
            "champion": decision.policy,
            "tables": {**record.tables, "champion_evaluation": decision.evaluation},
            "promotion": decision.sentence,
        }
        if decision.kind == "rollback":
            changes["rolled_back_to"] = decision.policy
        record = record.model_copy(update=changes)
    return record
