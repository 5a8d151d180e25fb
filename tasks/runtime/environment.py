"""What a child process inherits."""

import os


def single_threaded() -> dict[str, str]:
    """This process's environment, with one thread for numerical libraries."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
