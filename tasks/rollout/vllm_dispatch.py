"""Samples spread over servers: each takes the next one when it has room, and those of a server that fails go to the others."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.rollout.engine import Completion, EngineError
from tasks.rollout.vllm_answers import Sample
from tasks.rollout.vllm_replica import NotConnected, ReplicaFailed

MAX_ATTEMPTS = 4
"""Of one sample. One that fails on every server would otherwise go round for ever, or take them down one by one."""


@dataclass
class Lane:
    """One server's way of answering.

    ``ask``: one sample's completion, or ReplicaFailed. ``epoch``: a number that grows when the server was started anew.
    ``revive(epoch, failure)``: after a failure in that epoch: whether the server can be asked again.
    """

    ask: Callable[[Sample], Completion]
    epoch: Callable[[], int]
    revive: Callable[[int, ReplicaFailed], bool]
    num_workers: int


class Work:
    """The samples that wait, those under way, and the answers. One lock for all of them."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._waiting = deque((sample, 1) for sample in samples)
        self._num_left = len(samples)
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self.last_failure: ReplicaFailed | None = None
        self.completions: list[Completion] = []
        self.num_retries = 0

    def take(self) -> tuple[Sample, int] | None:
        """The next sample and the number of its attempt; waits while others may give one back; None when all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._num_left == 0 or self._error)
            return None if self._error or not self._waiting else self._waiting.popleft()

    def answered(self, sample: Sample, attempt: int, completion: Completion) -> None:
        """Keep an answer. One that the server aborted (it may be about to end) is asked for again while attempts are left."""
        with self._changed:
            if completion.finish_reason == "abort" and attempt < MAX_ATTEMPTS:
                self._again(sample, attempt)
            else:
                self.completions.append(completion)
                self._num_left -= 1
            self._changed.notify_all()

    def give_back(self, sample: Sample, attempt: int, failure: ReplicaFailed) -> None:
        """A sample without an answer waits for another server, or another try."""
        with self._changed:
            self.last_failure = failure
            if attempt >= MAX_ATTEMPTS:
                self._fail(
                    EngineError(f"{sample.name} was not answered in {attempt} attempts; the last one: {failure}")
                )
            else:
                self._again(sample, attempt)
            self._changed.notify_all()

    def untried(self, sample: Sample, attempt: int) -> None:
        """A sample that was taken for a server that is no more: the next one, and no attempt is lost."""
        with self._changed:
            self._waiting.appendleft((sample, attempt))
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Nothing more is taken; the first error is kept."""
        with self._changed:
            self._fail(error)
            self._changed.notify_all()

    def wait(self, seconds: float) -> tuple[int, bool]:
        """How many are answered, and whether all are; returns at the latest after ``seconds``. Raises what failed."""
        with self._changed:
            known = len(self.completions)
            self._changed.wait_for(
                lambda: len(self.completions) > known or self._num_left == 0 or self._error, timeout=seconds
            )
            if self._error is not None:
                raise self._error
            return len(self.completions), self._num_left == 0

    def _again(self, sample: Sample, attempt: int) -> None:
        self._waiting.append((sample, attempt + 1))
        self.num_retries += 1

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error


def answer_all(
    samples: Sequence[Sample], lanes: Sequence[Lane], on_progress: Callable[[int, int], None]
) -> tuple[list[Completion], int]:
    """A completion for every sample, in any order, and how many had to be asked for again.

    Raises:
        EngineError: no server is left, a sample failed too often, or an answer does not fit.
    """
    work = Work(samples)
    workers = [
        threading.Thread(target=_serve, args=(work, lane), daemon=True)
        for lane in lanes
        for _ in range(min(lane.num_workers, len(samples)))
    ]
    for worker in workers:
        worker.start()
    try:
        is_done = not samples
        while not is_done:
            is_alive = any(worker.is_alive() for worker in workers)
            num_answered, is_done = work.wait(0.5)
            on_progress(num_answered, len(samples))
            if not is_done and not is_alive:
                raise EngineError(f"no vLLM server is left to answer; the last failure: {work.last_failure}")
    except BaseException as error:
        work.fail(error)
        raise
    for worker in workers:
        worker.join()
    return work.completions, work.num_retries


def _serve(work: Work, lane: Lane) -> None:
    while (taken := work.take()) is not None:
        sample, attempt = taken
        epoch = lane.epoch()
        try:
            try:
                completion = lane.ask(sample)
            except ReplicaFailed as failure:
                if isinstance(failure, NotConnected):
                    work.untried(sample, attempt)
                else:
                    work.give_back(sample, attempt, failure)
                if not lane.revive(epoch, failure):
                    return
            else:
                work.answered(sample, attempt, completion)
        except BaseException as error:  # noqa: BLE001  # it is raised in the thread that waits
            work.fail(error)
            return
