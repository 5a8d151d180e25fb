"""What a child process inherits."""

import os


def single_threaded() -> dict[str, str]:
    """This process's environment, with one thread for numerical libraries."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def variable(name: str) -> str | None:
    """The value of an environment variable that the settings name; None where it is not set or empty."""
    return os.environ.get(name) or None


def of_ranks(num_processes: int, num_threads: int | None) -> dict[str, str]:
    """This process's environment for ranks on this machine: threads shared out evenly, nothing beyond the loopback."""
    threads = num_threads or max(1, (os.cpu_count() or 1) // num_processes)
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
