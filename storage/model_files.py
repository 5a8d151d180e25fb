"""The files of a registered model: hard links to the store's, so that a version costs no second copy."""

import errno
import os
import shutil
import stat
from pathlib import Path

from storage.checkpoints import TRAINER_FOLDER
from storage.files import fsync_tree
from storage.manifest import MANIFEST

_CAN_NOT_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES}


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
