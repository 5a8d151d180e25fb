"""sha256 of files and folders, and the digest of a set of parts."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

CHUNK_BYTES = 1 << 20


def sha256_of_file(path: Path) -> str:
    """sha256 of a file's bytes, 64 hex digits; memory stays at 1 MiB."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha.update(chunk)
    return sha.hexdigest()


def digest_of_parts(parts: Iterable[tuple[str, str]]) -> str:
    """One digest of (relative name, sha256) pairs; independent of their order, sensitive to every name and byte."""
    sha = hashlib.sha256()
    for name, part in sorted(parts):
        sha.update(f"{len(name.encode())}:{name}:{part};".encode())
    return sha.hexdigest()
