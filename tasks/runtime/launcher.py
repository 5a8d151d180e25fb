"""The process that holds the ranks together: torch's elastic launcher, ended by the end of its standard input."""

import json
import os
import signal
import sys
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

from tasks.runtime.rank_files import FAILURE_FILE, LAUNCHER_PID

HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 5


def main(module: str, folder: str, num_processes: int) -> int:
    """Run the ranks; the exit status is 0 when all of them finished."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ[LAUNCHER_PID] = str(os.getpid())
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{HOST}:0",
        local_addr=HOST,
        max_restarts=0,  # what failed is run again by who runs the stage again, from its beginning
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "tasks.runtime.rank_process", module, folder)
    except ChildFailedError as error:
        statuses = {rank: failure.exitcode for rank, failure in error.failures.items()}
        rank = first_to_blame(statuses)
        (Path(folder) / FAILURE_FILE).write_text(json.dumps({"rank": rank, "status": statuses[rank]}))
        return 1
    return 0


def first_to_blame(statuses: Mapping[int, int]) -> int:
    """The rank that failed by itself. One that was killed comes before those that raised an error, whose partner may have
    been gone; those that the launcher ended for the sake of the others (SIGTERM) come last."""

    def order(rank: int) -> tuple[bool, bool, int]:
        return statuses[rank] == -signal.SIGTERM, statuses[rank] >= 0, rank

    return min(statuses, key=order)


def _end_with_parent() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
