"""What a child process inherits."""

import os


def single_threaded() -> dict[str, str]:
    """This process's environment, with one thread for numerical libraries."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def variable(name: str) -> str | None:
    """The value of an environment variable that the settings name; None where it is not set or empty."""
    return os.environ.get(name) or None
