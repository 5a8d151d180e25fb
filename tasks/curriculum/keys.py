"""When are two prompts the same prompt?"""

import hashlib
import unicodedata


def normalise(text: str) -> str:
    """NFC, one form of line ends, no outer white space. Inner white space and case stay: they can change a task."""
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def prompt_key(text: str) -> str:
    """sha256 of the normalised text, 64 hex digits; the same in every process (Python's ``hash`` is not)."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).hexdigest()
