"""Scoring over several verifier processes: order kept, deadlines per row, dead processes replaced."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tasks.verifiers.child import Child, ChildDied, ChildTimeout
from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.verdict import ScoreItem, Verdict, failed, timed_out

PROGRESS_EVERY = 16
OnProgress = Callable[[int, int], None]


class VerifierPool:
    """Processes that score rows. ``close`` ends them; they also end with this process, however it ends.

    A row that takes longer than the deadline has its process killed and gets ``timeout``; one that ends its process gets
    ``error``. Neither is tried again, and the rows after it go to a fresh process.
    """

    def __init__(self, configs: Sequence[VerifierConfig], num_workers: int, row_deadline_seconds: float) -> None:
        self._configs = list(configs)
        self._deadline_seconds = row_deadline_seconds
        self._is_closed = False
        self._children: list[Child | None] = [self._start() for _ in range(num_workers)]
        # The threads that replace a child must outlive it: a child ends with the thread that started it.
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="verify")

    def __enter__(self) -> "VerifierPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill and reap every process."""
        self._is_closed = True
        self._kill_all()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._kill_all()  # one that was being replaced meanwhile

    def score(self, items: Sequence[ScoreItem], on_progress: OnProgress) -> list[list[Verdict]]:
        """The verdicts of every row, one per verifier, in the order of the rows."""
        if self._is_closed:
            raise ValueError("this pool is closed")
        verdicts: list[list[Verdict]] = [[] for _ in items]
        rows = iter(range(len(items)))  # shared: an idle process takes the next row
        done = itertools.count(1)

        def work(slot: int) -> None:
            for row in rows:
                verdicts[row] = [self._verdict(slot, position, items[row]) for position in range(len(self._configs))]
                finished = next(done)
                if finished % PROGRESS_EVERY == 0 or finished == len(items):
                    on_progress(finished, len(items))

        for future in [self._threads.submit(work, slot) for slot in range(len(self._children))]:
            future.result()
        return verdicts

    def pids(self) -> list[int]:
        """Process ids of the living children."""
        return [child.pid for child in self._children if child is not None]

    def _verdict(self, slot: int, position: int, item: ScoreItem) -> Verdict:
        child = self._children[slot]
        try:
            if child is None:
                child = self._children[slot] = self._start()
            return child.ask(position, item, self._deadline_seconds)
        except (ChildTimeout, ChildDied) as error:
            if child is not None:
                child.kill()
            self._children[slot] = None
            return (timed_out if isinstance(error, ChildTimeout) else failed)(str(error))

    def _start(self) -> Child:
        if self._is_closed:
            raise ChildDied("this pool is closed")
        child = Child(self._configs)
        try:
            child.wait_ready()
        except (ChildTimeout, ChildDied):
            child.kill()
            raise
        return child

    def _kill_all(self) -> None:
        for slot, child in enumerate(self._children):
            if child is not None:
                child.kill()
                self._children[slot] = None
