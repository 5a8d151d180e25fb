"""Seeds derived by hashing, so that no two of them collide by arithmetic."""

import hashlib

MAX_SEED = 2**63 - 1


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2**63) from the named parts of a sampling event.

    ``seed + index`` makes neighbouring runs share their samples (a request with n samples and seed s uses s..s+n-1 in
    several engines); a hash of (run seed, iteration, step, prompt id, sample index) does not. Each part is written with its
    type and length before hashing, so ("a", "b") and ("ab",) differ, and so do 1 and "1".

    Args:
        parts: integers and strings that together name the event; order matters.

    Returns:
        An integer that fits a signed 64-bit column and torch's ``manual_seed``.
    """
    if not parts:
        raise ValueError("derive_seed needs at least one part: a seed of nothing would be the same everywhere")
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, (int, str)):
            raise ValueError(f"a seed part is an int or a str, not {part!r}")
        text = f"{type(part).__name__}:{part}"
        sha.update(f"{len(text.encode())}:{text};".encode())
    return int.from_bytes(sha.digest()[:8], "big") & MAX_SEED
