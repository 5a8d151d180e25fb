"""Samples between servers that come and go, without any server."""

import threading
import time

import pytest

from tasks.rollout.engine import Completion, EngineError, GroupRequest
from tasks.rollout.vllm_answers import Sample
from tasks.rollout.vllm_dispatch import MAX_ATTEMPTS, Lane, answer_all
from tasks.rollout.vllm_replica import NotConnected, ReplicaFailed

SAMPLES = [Sample(GroupRequest("g", "p", (1,), "", tuple(range(6))), index, 4) for index in range(6)]


def completion(sample, reason="stop"):
    return Completion("g", sample.index, (5,), (-1.0,), reason)


def silent(done, total):
    return None


def lane(ask, revive=lambda epoch, failure: False, num_workers=2):
    return Lane(ask=ask, epoch=lambda: 0, revive=revive, num_workers=num_workers)


def indices(completions):
    return sorted(each.sample_index for each in completions)


def test_a_lane_without_a_server_costs_no_attempt():
    """Its workers take a sample each before they know; a sample that went through them all is still answered."""
    gone = threading.Barrier(8)

    def closed(sample):
        gone.wait(20)
        raise NotConnected("closed")

    def open_later(sample):
        opened.wait(20)
        return completion(sample)

    opened = threading.Event()
    dead = lane(closed, num_workers=8)
    living = lane(open_later, num_workers=1)
    threading.Timer(0.2, opened.set).start()
    many = [Sample(SAMPLES[0].request, index % 6, 4) for index in range(9)]
    completions, num_retries = answer_all(many, [dead, living], silent)
    assert len(completions) == 9
    assert num_retries == 0


def test_one_sample_is_tried_a_few_times_and_then_named():
    tries = []

    def broken(sample):
        tries.append(sample.index)
        raise ReplicaFailed("status 500")

    with pytest.raises(
        EngineError, match=f"sample 3 of group g was not answered in {MAX_ATTEMPTS} attempts.*status 500"
    ):
        answer_all([SAMPLES[3]], [lane(broken, revive=lambda *_: True, num_workers=1)], silent)
    assert tries == [3] * MAX_ATTEMPTS


def test_what_a_lane_gives_back_goes_to_another_that_had_nothing_left_to_do():
    idle, answered = threading.Event(), []

    def late_failure(sample):
        idle.wait(20)
        time.sleep(0.3)  # the other's workers have come back for more
        raise ReplicaFailed("gone")

    def answer(sample):
        answered.append(sample.index)
        if len(answered) == len(SAMPLES) - 1:
            idle.set()
        return completion(sample)

    completions, num_retries = answer_all(SAMPLES, [lane(late_failure, num_workers=1), lane(answer)], silent)
    assert indices(completions) == [0, 1, 2, 3, 4, 5]
    assert num_retries == 1


def test_an_error_that_is_no_failure_of_a_server_ends_all_and_is_raised():
    def wrong(sample):
        raise EngineError(f"{sample.name}: wrong")

    with pytest.raises(EngineError, match="of group g: wrong"):
        answer_all(SAMPLES, [lane(wrong), lane(wrong)], silent)


def test_an_error_while_reviving_ends_all_and_is_raised():
    def broken(sample):
        raise ReplicaFailed("gone")

    def too_often(epoch, failure):
        raise EngineError("died too often")

    with pytest.raises(EngineError, match="died too often"):
        answer_all(SAMPLES, [lane(broken, revive=too_often)], silent)


def test_without_a_lane_left_the_last_failure_is_named():
    def broken(sample):
        raise ReplicaFailed("the reason")

    with pytest.raises(EngineError, match="no vLLM server is left to answer; the last failure: the reason"):
        answer_all(SAMPLES, [lane(broken)], silent)


def test_no_sample_needs_no_lane():
    assert answer_all([], [], silent) == ([], 0)


def test_progress_ends_with_all():
    seen = []
    answer_all(SAMPLES, [lane(completion)], lambda *counts: seen.append(counts))
    assert seen[-1] == (6, 6)
    assert seen == sorted(seen)
