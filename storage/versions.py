"""The numbers of a lineage's models: given by the store, so that a version exists whether MLflow answers or not."""

import json
from pathlib import Path

from storage import files, working_copy
from storage.errors import UnknownFormat
from storage.iterations import IterationRecord, records
from storage.lock import require_token
from storage.refs import ModelRef, Place

FORMAT = 1
VERSIONS_FILE = "versions.json"
KEY_CHARACTERS = 16


def assign(place: Place, ref: ModelRef) -> ModelRef:
    """The model of this iteration with its version: the next free number of its role, from 1, the same when repeated.

    A model that had to be made again and came out differently is another version; a number is never given twice. A
    lineage from before the store gave the numbers goes on behind the highest that its records name.

    Raises:
        LostLock: another run took the lineage. UnknownFormat: the numbers were written by another version of this code.
    """
    require_token(place)
    path = place.lineage_folder / VERSIONS_FILE
    given = _read(path)
    numbers = given.setdefault(ref.role, {})
    key = f"{place.iteration:04d}/{ref.digest[:KEY_CHARACTERS]}"
    if key not in numbers:
        named = [number for record in records(Path(place.root), place.lineage) for number in _named(record, ref)]
        numbers[key] = max([0, *numbers.values(), *named]) + 1
        data = json.dumps({"format": FORMAT, "versions": given}, indent=1, sort_keys=True)
        files.write_atomic(path, f"{data}\n".encode())
        working_copy.send_file(path)
    return ref.model_copy(update={"version": str(numbers[key])})


def _read(path: Path) -> dict[str, dict[str, int]]:
    if not path.is_file():
        return {}
    found = files.read_json(path, cure="delete it, the numbers of the records stay taken")
    if found.get("format") != FORMAT:
        raise UnknownFormat(f"{path} has format {found.get('format')!r}, this code reads {FORMAT}")
    return dict(found["versions"])


def _named(record: IterationRecord, ref: ModelRef) -> list[int]:
    models = [record.policy, record.reference, record.champion, record.reward, record.refused_reward, record.critic]
    return [int(each.version) for each in models if each is not None and each.role == ref.role and each.version]
