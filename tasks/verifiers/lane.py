"""One verifier process at a time: the work sent to it, the clock of what it is on, and who is to blame when it is lost."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from tasks.verifiers import protocol
from tasks.verifiers.child import Child
from tasks.verifiers.verdict import CannotStart, ScoreItem, Verdict, failed, timed_out

START_SECONDS = 120.0
"""For the imports of a fresh process, which cost seconds and more on a busy machine; they do not count for any row."""

AHEAD_SECONDS = 0.05
"""Work is sent ahead for about this long: enough that the process never waits for its parent, little enough that no other
process is idle at the end for long."""
MAX_AHEAD = 63
PACE_MEMORY = 0.8
MIN_PACE_SECONDS = 1e-6


@dataclass
class Work:
    """Rows that go to a process together (one, or a group), and the verifiers that have yet to answer, in order."""

    rows: tuple[int, ...]
    verifiers: list[int]
    is_second_try: bool = False
    """Its process was killed from outside once; when that happens again the rows are to blame."""


@dataclass(frozen=True)
class Answer:
    """What one verifier said, or how it failed, on the rows of one piece of work."""

    rows: tuple[int, ...]
    verifier: int
    verdicts: list[Verdict]


class Lane:
    """``start`` makes a process; ``deadlines``: seconds for one row, per verifier.

    A row's clock starts when its process has finished the row before it (or has the whole request, where that is later).
    Only what the process was on when it was lost is to blame; everything behind it is given back to be sent again. What it
    was on when SIGKILL came from outside is given back too, once.
    """

    def __init__(self, start: Callable[[], Child], deadlines: Sequence[float]) -> None:
        self._start = start
        self._deadlines = deadlines
        self.child: Child | None = None
        self.queue: deque[Work] = deque()
        self.num_lost = 0
        """Processes that ended or had to be killed over a row."""
        self._is_ready = False
        self._clock = 0.0
        self._pace = AHEAD_SECONDS  # seconds per piece of work, smoothed

    def open(self) -> None:
        """Start a process where there is none."""
        if self.child is None:
            self.child, self._is_ready = self._start(), False
            self._clock = time.monotonic()

    @property
    def is_starting(self) -> bool:
        return self.child is not None and not self._is_ready

    def fill(self, waiting: deque[Work], items: Sequence[ScoreItem]) -> None:
        """Send work ahead; it leaves ``waiting``. Nothing is sent while the pipe is full or the process is starting."""
        self.open()
        assert self.child is not None
        room = 1 + int(min(MAX_AHEAD, AHEAD_SECONDS / max(self._pace, MIN_PACE_SECONDS)))
        while self._is_ready and waiting and len(self.queue) < room and not self.child.has_unsent:
            work = waiting.popleft()
            if not self.queue:
                self._clock = time.monotonic()
            self.queue.append(work)
            self.child.send(protocol.request_line(work.verifiers, [items[row] for row in work.rows]))

    def seconds_left(self) -> float:
        """Until the process is overdue; infinite while nothing is asked of it."""
        if self.child is None or (self._is_ready and not self.queue):
            return inf
        return self._clock + self._allowed() - time.monotonic()

    def advance(self) -> tuple[list[Answer], list[Work]]:
        """The answers since the last time and, when the process was lost, the work that has to be sent again.

        Raises:
            CannotStart: the process never came to work.
        """
        if self.child is None:
            return [], []
        if self.child.has_unsent and self.child.send_more() and len(self.queue) == 1:
            self._clock = time.monotonic()  # the row's own request is still on its way
        is_overdue = self.seconds_left() <= 0
        answers = self._receive(self.child)
        if self.child.has_ended:
            return self._lose(answers, failed)
        if is_overdue and not answers:
            self.child.kill()
            late = self._receive(self.child)  # said between the last look and the end: then nobody is to blame
            if not late:
                return self._lose(late, timed_out)
            self.num_lost += 1
            return late, self._give_back()
        return answers, []

    def close(self) -> None:
        """End the process; the work that it had is forgotten."""
        self._give_back()

    def _allowed(self) -> float:
        if not self._is_ready:
            return START_SECONDS
        work = self.queue[0]
        return self._deadlines[work.verifiers[0]] * len(work.rows)

    def _receive(self, child: Child) -> list[Answer]:
        answers = []
        for line in child.lines():
            now = time.monotonic()
            if not self._is_ready:
                if fault := protocol.read_start(line):
                    raise CannotStart(fault)
                child.came_to_work()
                self._is_ready = True
            else:
                work = self.queue[0]
                answers.append(Answer(work.rows, work.verifiers.pop(0), protocol.read_answer(line)))
                if not work.verifiers:
                    self.queue.popleft()
                    self._pace = PACE_MEMORY * self._pace + (1 - PACE_MEMORY) * (now - self._clock)
            self._clock = now
        return answers

    def _lose(self, answers: list[Answer], fault: Callable[[str], Verdict]) -> tuple[list[Answer], list[Work]]:
        """The process is of no use any more: the row that it was on gets the blame, what is behind it goes back."""
        assert self.child is not None
        missing = "verdict" if self._is_ready else "start"
        reason = f"no {missing} within {self._allowed():g} s" if fault is timed_out else self.child.how_it_ended()
        if not self._is_ready:
            raise CannotStart(f"the verifiers can not start: {reason}")
        self.num_lost += 1
        if self.queue:
            work = self.queue[0]
            if fault is failed and self.child.was_killed() and not work.is_second_try:
                # The system (memory) or a person did it: a reward must not depend on who was killed beside it.
                work.is_second_try = True
                return answers, self._give_back()
            answers.append(Answer(work.rows, work.verifiers.pop(0), [fault(reason)] * len(work.rows)))
        return answers, self._give_back()

    def _give_back(self) -> list[Work]:
        if self.child is not None:
            self.child.close()
            self.child = None
        left = [work for work in self.queue if work.verifiers]
        self.queue.clear()
        return left
