"""When are two prompts the same prompt?"""

import hashlib
import unicodedata


def normalise(text: str) -> str:
    """NFC, one form of line ends, no outer white space. Inner white space and case stay: they can change a task."""
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def prompt_key(text: str) -> str:
    """sha256 of the normalised text, 64 hex digits; the same in every process (Python's ``hash`` is not)."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).hexdigest()


RESERVED_SHARE = 8
"""One in so many prompts may be held out and is therefore never demonstrated by a warm start."""


def heldout_rank(key: str) -> str:
    """A hash of the key, 64 hex digits: the prompts with the smallest ranks are held out."""
    return hashlib.sha256(f"heldout:{key}".encode()).hexdigest()


def may_be_demonstrated(key: str) -> bool:
    """Whether supervised training may show this prompt: its rank lies above the eighth that can be held out.

    True to its purpose while at most an eighth of a lineage's prompts are held out.
    """
    return int(heldout_rank(key)[:8], 16) >= 2**32 // RESERVED_SHARE
