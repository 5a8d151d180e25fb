"""Scoring over several verifier processes: order kept, deadlines per row, dead processes replaced."""

import math
import select
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tasks.verifiers.child import Child
from tasks.verifiers.failures import FailureBudget
from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.lane import Lane, Work
from tasks.verifiers.verdict import ScoreItem, Verdict

PROGRESS_EVERY = 16
OnProgress = Callable[[int, int], None]


class VerifierPool:
    """Processes that score rows. ``close`` ends them; they also end with this process, however it ends.

    Rows are sent ahead, so that no process waits for this one. A row that takes longer than its deadline has its process
    killed and gets ``timeout``; one that ends its process gets ``error``. Neither is tried again, but for a row whose process
    was ended by SIGKILL (by hand, or by the system when memory ran out): it is tried once more, then it gets ``error``. The
    rows behind it go to a fresh process, and none is scored twice.

    Raises:
        CannotStart: a verifier lacks something without which it can score no row; here or, where a process has to be
            replaced, in ``score``.
    """

    def __init__(
        self,
        configs: Sequence[VerifierConfig],
        num_workers: int,
        row_deadline_seconds: float,
        max_failed_share: float = 1.0,
    ) -> None:
        self._configs = list(configs)
        self._max_failed_share = max_failed_share
        self._is_closed = False
        self.num_replaced = 0
        """Processes that were lost during the last ``score``, each of which another one takes the place of."""
        # A child ends with the thread that started it: this one lives as long as the pool, whoever calls it.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="verify")
        deadlines = [config.deadline_seconds or row_deadline_seconds for config in self._configs]
        self._lanes = [Lane(self._start, deadlines) for _ in range(num_workers)]
        try:
            self._wait_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "VerifierPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill and reap every process."""
        self._is_closed = True
        for lane in self._lanes:
            lane.close()
        self._starter.shutdown(wait=True)

    def score(self, items: Sequence[ScoreItem], on_progress: OnProgress) -> list[list[Verdict]]:
        """The verdicts of every row, one per verifier, in the order of the rows.

        Raises:
            ValueError: a verifier failed on more rows than ``max_failed_share`` allows; said as soon as that is certain.
        """
        if self._is_closed:
            raise ValueError("this pool is closed")
        if not any(config.reads_token_ids for config in self._configs):
            items = [replace(item, completion_token_ids=()) if item.completion_token_ids else item for item in items]
        found: list[dict[int, Verdict]] = [{} for _ in items]
        budget = FailureBudget([config.name for config in self._configs], len(items), self._max_failed_share)
        waiting, num_done = deque(self._work(items)), 0
        for lane in self._lanes:
            lane.advance()  # one that ended while nothing was asked of it: no row is to blame
        before = sum(lane.num_lost for lane in self._lanes)
        try:
            while waiting or any(lane.queue for lane in self._lanes):
                if waiting:
                    for lane in self._lanes:
                        lane.fill(waiting, items)
                self._wait()
                for lane in self._lanes:
                    answers, again = lane.advance()
                    waiting.extendleft(reversed(again))
                    for answer in answers:
                        budget.count(answer.verifier, answer.verdicts)
                        for row, verdict in zip(answer.rows, answer.verdicts, strict=True):
                            found[row][answer.verifier] = verdict
                            if len(found[row]) == len(self._configs):
                                num_done += 1
                                if num_done % PROGRESS_EVERY == 0 or num_done == len(items):
                                    on_progress(num_done, len(items))
        finally:
            for lane in self._lanes:
                if lane.queue:  # stopped on the way: answers to old questions must not meet new ones
                    lane.close()
            self.num_replaced = sum(lane.num_lost for lane in self._lanes) - before
        return [[verdicts[position] for position in range(len(self._configs))] for verdicts in found]

    def pids(self) -> list[int]:
        """Process ids of the living children."""
        return [lane.child.pid for lane in self._lanes if lane.child is not None]

    def _work(self, items: Sequence[ScoreItem]) -> list[Work]:
        alone = [position for position, config in enumerate(self._configs) if not config.compares_groups]
        together = [position for position, config in enumerate(self._configs) if config.compares_groups]
        work = [Work((row,), list(alone)) for row in range(len(items)) if alone]
        groups: dict[str, list[int]] = {}
        for row, item in enumerate(items):
            groups.setdefault(item.group_id, []).append(row)
        return work + [Work(tuple(rows), [position]) for rows in groups.values() for position in together]

    def _wait(self) -> None:
        """Until a process says something, takes more, or is overdue."""
        poll = select.poll()
        for lane in self._lanes:
            if lane.child is not None:
                poll.register(lane.child.answers, select.POLLIN)
                if lane.child.has_unsent:
                    poll.register(lane.child.requests, select.POLLOUT)
        seconds = min(lane.seconds_left() for lane in self._lanes)
        poll.poll(None if math.isinf(seconds) else max(0, math.ceil(seconds * 1000)))

    def _wait_ready(self) -> None:
        for lane in self._lanes:
            lane.open()
        while any(lane.is_starting for lane in self._lanes):
            self._wait()
            for lane in self._lanes:
                lane.advance()

    def _start(self) -> Child:
        if self._is_closed:
            raise ValueError("this pool is closed")
        return self._starter.submit(Child, self._configs).result()
