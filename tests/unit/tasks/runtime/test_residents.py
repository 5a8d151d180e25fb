"""What stays in memory is found under the digest it was made from, and under no other."""

import pytest

from tasks.runtime import residents


@pytest.fixture(autouse=True)
def empty():
    residents.clear()
    yield
    residents.clear()


class Closable:
    closed = False

    def close(self):
        self.closed = True


def test_the_same_digest_is_loaded_once_and_another_replaces_it():
    loads = []
    load = lambda: loads.append(1) or object()  # noqa: E731
    first = residents.get("policy", "a", load)
    assert residents.get("policy", "a", load) is first
    assert residents.get("policy", "b", load) is not first
    assert residents.get("policy", "a", load) is not first
    assert len(loads) == 3


def test_what_is_taken_out_to_be_changed_can_not_be_found_under_its_old_digest():
    value = object()
    residents.keep("policy", "a", value)
    assert residents.take("policy", "a", object) is value
    assert residents.get("policy", "a", object) is not value


def test_slots_do_not_disturb_each_other():
    policy, reference = object(), object()
    residents.keep("policy", "a", policy)
    residents.keep("reference", "a", reference)
    residents.drop("policy")
    assert residents.get("reference", "a", object) is reference


def test_what_leaves_is_closed():
    first, second = Closable(), Closable()
    residents.keep("verifiers", "a", first)
    residents.get("verifiers", "b", lambda: second)
    assert (first.closed, second.closed) == (True, False)
    residents.clear()
    assert second.closed


def test_dropping_an_empty_slot_leaves_the_others():
    kept = object()
    residents.keep("policy", "a", kept)
    residents.drop("nothing")
    assert residents.get("policy", "a", object) is kept
