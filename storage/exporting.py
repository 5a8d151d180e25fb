"""A version in a folder of its own: weights as transformers loads them, tables as single Parquet files, digests of all."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq

from storage import files, tables
from storage.checkpoints import TRAINER_FOLDER, open_folder
from storage.digests import sha256_of_file
from storage.errors import StorageError
from storage.manifest import MANIFEST
from storage.refs import DatasetRef, ModelRef

DATA_FOLDER = "data"
CARD_FILE = "README.md"
RECIPE_FILE = "recipe.json"
DIGESTS_FILE = "SHA256SUMS"


def export(
    target: Path, policy: ModelRef, named: Mapping[str, DatasetRef], recipe: Mapping[str, object], card: str
) -> int:
    """Write the folder aside and rename it to ``target``; gives its bytes. Every byte that is read is compared first.

    The trainer's state stays in the store. ``SHA256SUMS`` is what ``sha256sum --check`` reads.

    Raises:
        StorageError: ``target`` is there and not empty, or can not be made.
        CorruptArtifact, PrunedCheckpoint: the weights or a table are not what was committed; nothing was written.
    """
    target = target.expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StorageError(f"{target} is there and is not an empty folder; give --to a folder that is not there yet")
    source = open_folder(policy)
    with files.folder_aside(target) as aside:
        for path in sorted(source.rglob("*")):
            inner = path.relative_to(source)
            if path.is_file() and inner.parts[0] not in (TRAINER_FOLDER, MANIFEST):
                (aside / inner).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, aside / inner)
        (aside / DATA_FOLDER).mkdir()
        for name, ref in named.items():
            pq.write_table(tables.read_arrow(ref), aside / DATA_FOLDER / f"{name}.parquet", compression="zstd")
        text = json.dumps(recipe, indent=1, ensure_ascii=False) + "\n"
        (aside / RECIPE_FILE).write_text(text, encoding="utf-8")
        (aside / CARD_FILE).write_text(card, encoding="utf-8")
        written = sorted(path for path in aside.rglob("*") if path.is_file())
        sums = "".join(f"{sha256_of_file(path)}  {path.relative_to(aside).as_posix()}\n" for path in written)
        (aside / DIGESTS_FILE).write_text(sums, encoding="utf-8")
        num_bytes = sum(path.stat().st_size for path in written) + len(sums.encode())
        files.fsync_tree(aside)
        if target.exists():
            target.rmdir()
        files.commit_folder(aside, target)
    return num_bytes
