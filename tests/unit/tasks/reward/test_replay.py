"""How much history is replayed, and which rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reward.config import HistoryReplay, MixReplay
from tasks.reward.replay import mix, num_replayed


@pytest.mark.parametrize(
    ("fresh", "history", "expected"),
    [(90, 500, 50), (90, 25, 3), (90, 24, 2), (90, 4, 1), (90, 1, 1), (90, 0, 0), (0, 500, 0), (5, 15, 2)],
)
def test_history_replays_a_tenth_of_it_rounded_half_up_and_at_least_one(fresh, history, expected):
    assert num_replayed(fresh, history, HistoryReplay()) == expected


@pytest.mark.parametrize(
    ("fresh", "history", "expected"), [(90, 500, 10), (90, 4, 4), (7, 500, 1), (0, 500, 0), (90, 0, 0), (45, 500, 5)]
)
def test_mix_replays_a_tenth_of_the_mixed_set(fresh, history, expected):
    assert num_replayed(fresh, history, MixReplay(kind="mix")) == expected


def test_a_half_that_is_inexact_in_binary_is_still_rounded_up():
    assert 0.29 * 50 < 14.5
    assert num_replayed(10, 50, HistoryReplay(fraction=0.29)) == 15


def test_a_fraction_of_zero_replays_nothing():
    assert num_replayed(10, 100, HistoryReplay(fraction=0.0)) == 0


def row(name, key="train"):
    return {"label_id": name, "prompt_key": key, "origin_iteration": 0}


FRESH = [row(f"f{index}") for index in range(9)]
HISTORY = [row(f"h{index}") for index in range(100)]


def mixed(fresh=FRESH, history=HISTORY, config=None, seed=0):
    return mix(fresh, history, config or HistoryReplay(), seed=seed, heldout_keys={"held out"})


def test_fresh_and_replayed_rows_are_marked_and_distinct():
    rows, metrics = mixed()
    assert [each["is_replayed"] for each in rows] == [False] * 9 + [True] * 10
    assert len({each["label_id"] for each in rows}) == 19
    assert {each["label_id"] for each in rows[9:]} <= {each["label_id"] for each in HISTORY}
    assert metrics == {"num_fresh": 9, "num_replayed": 10, "num_history": 100, "num_anchor_rows_left_out": 0}


def test_the_draw_depends_on_the_seed_and_not_on_the_order_of_the_history():
    ids = lambda rows: [each["label_id"] for each in rows[0]]  # noqa: E731
    assert ids(mixed()) == ids(mixed(history=HISTORY[::-1]))
    assert ids(mixed()) != ids(mixed(seed=1))


def test_a_replay_of_everything_draws_every_row_once_and_keeps_its_origin():
    history = [{**each, "origin_iteration": 2} for each in HISTORY]
    rows, metrics = mixed(history=history, config=HistoryReplay(fraction=1.0))
    replayed = [each for each in rows if each["is_replayed"]]
    assert sorted(each["label_id"] for each in replayed) == sorted(each["label_id"] for each in HISTORY)
    assert {each["origin_iteration"] for each in replayed} == {2}
    assert metrics["num_replayed"] == len(replayed) == 100


def test_without_new_rows_nothing_is_trained():
    assert mixed(fresh=[])[0] == []


def test_a_held_out_prompt_is_refused():
    with pytest.raises(ValueError, match="1 labels belong to held-out prompts"):
        mixed(fresh=[*FRESH, row("leak", "held out")])


def test_a_pair_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match="f0 stands twice"):
        mixed(history=[*HISTORY, row("f0")])


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([HistoryReplay(), MixReplay(kind="mix")]))
def test_never_more_than_there_is(fresh, history, config):
    assert 0 <= num_replayed(fresh, history, config) <= history
