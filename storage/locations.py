"""Where refs point: relative to the store's root in files, absolute in memory, and never out of the store."""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from storage.errors import OutsideStore

_ITERATION = re.compile(r"iteration-\d{4,}")


def stored(value: Any, root: Path) -> Any:
    """The JSON value with the uri of every ref in it relative to ``root`` (LINEAGE/iteration-0003/...).

    A store can be moved: what its files name, they name from its root on.

    Raises:
        OutsideStore: a ref does not point into the store.
    """
    return _mapped(value, lambda uri: inside(uri, root).relative_to(root.resolve()).as_posix())


def opened(value: Any, root: Path) -> Any:
    """The JSON value with the uri of every ref in it absolute, below ``root``; refuses what leads out of it.

    Raises:
        OutsideStore: a ref does not point into the store.
    """
    return _mapped(value, lambda uri: str(inside(uri, root)))


def inside(uri: str, root: Path) -> Path:
    """The absolute path of a ref's folder, symbolic links followed.

    Raises:
        OutsideStore: it is not a folder below ``root`` ("..", an absolute path to elsewhere, a link that leads out).
    """
    base = root.resolve()
    path = (base / uri).resolve()
    if base not in path.parents:
        raise OutsideStore(
            f"the reference {uri!r} leads to {path}, out of the store {base}; what a store names stands in it: "
            "restore the record from a copy, or put the folder itself where the link stands"
        )
    return path


def relocated(uri: str) -> str:
    """LINEAGE/iteration-0003/... of an absolute uri, wherever the store stood when it was written.

    A uri without an iteration's folder is left as it is.
    """
    parts = PurePosixPath(uri).parts
    marks = [index for index, part in enumerate(parts) if _ITERATION.fullmatch(part)]
    return uri if not marks or marks[-1] == 0 else PurePosixPath(*parts[marks[-1] - 1 :]).as_posix()


def relocate_refs(value: Any) -> Any:
    """The JSON value with ``relocated`` applied to the uri of every ref in it."""
    return _mapped(value, relocated)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every ref's uri changed; a ref is an object with a uri and a digest."""
    if isinstance(value, dict):
        if isinstance(uri := value.get("uri"), str) and "digest" in value:
            return {**value, "uri": change(uri)}
        return {key: _mapped(each, change) for key, each in value.items()}
    return [_mapped(each, change) for each in value] if isinstance(value, list) else value
