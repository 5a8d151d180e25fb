"""Whatever a row or a verdict holds arrives at the other side of the pipe as it was, on one line."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tasks.verifiers.answer_kinds import ExactVerifier, MathVerifier
from tasks.verifiers.protocol import (
    READY,
    answer_line,
    opening_line,
    read_answer,
    read_opening,
    read_request,
    read_start,
    request_line,
    start_line,
)
from tasks.verifiers.verdict import ScoreItem, Verdict

ANY_TEXT = st.text(alphabet=st.characters(codec=None))
ODD = ["\ud800", "\ud83d\ude00", "a\x00b", "\u2028\u2029\x85\r\n\x0b", "", "정답 👍", "\\ud800", '"}]\n["']
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
ITEMS = st.builds(
    ScoreItem,
    prompt=ANY_TEXT,
    answer=ANY_TEXT,
    completion=ANY_TEXT | st.sampled_from(ODD),
    metadata=st.dictionaries(ANY_TEXT, JSON, max_size=3),
    is_truncated=st.booleans(),
    is_chat=st.booleans(),
    group_id=ANY_TEXT,
    completion_token_ids=st.lists(st.integers(0, 2**31 - 1)).map(tuple),
)
FLOATS = st.floats(allow_nan=False)
VERDICTS = st.builds(
    Verdict,
    reward=st.none() | FLOATS,
    status=st.sampled_from(["scored", "unscored", "timeout", "error"]),
    reason=ANY_TEXT | st.sampled_from(ODD),
    steps=st.lists(st.tuples(st.integers(0, 2**40), FLOATS)).map(tuple),
    counts=st.lists(st.tuples(ANY_TEXT, FLOATS)).map(tuple),
)


@given(st.lists(st.integers(0, 9)), st.lists(ITEMS, max_size=3))
def test_a_request_comes_back_as_it_was_on_one_line(verifiers, items):
    line = request_line(verifiers, items)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert read_request(line) == (verifiers, items)


@given(st.lists(VERDICTS, max_size=3))
def test_an_answer_comes_back_as_it_was_on_one_line(verdicts):
    line = answer_line(verdicts)
    assert line.count(b"\n") == 1
    found = read_answer(line)
    assert found == verdicts
    assert [type(each.reward) for each in found] == [type(each.reward) for each in verdicts]
    assert {hash(each) for each in found} == {hash(each) for each in verdicts}


@given(ANY_TEXT)
def test_what_is_missing_at_the_start_comes_back_as_it_was(fault):
    line = start_line(fault)
    assert line.count(b"\n") == 1
    assert read_start(line) == fault
    assert read_start(start_line(READY)) == READY


def test_odd_texts_and_a_very_long_one_survive():
    for text in (*ODD, "x\n" * 2_500_000):
        (found,) = read_request(request_line([0], [ScoreItem(text, text, text, {text: text})]))[1]
        assert (found.prompt, found.answer, found.completion, found.metadata) == (text, text, text, {text: text})


def test_a_number_that_is_none_arrives_as_one():
    (found,) = read_request(request_line([0], [ScoreItem("", "", "", {"a": math.nan})]))[1]
    assert math.isnan(found.metadata["a"])


def test_the_settings_arrive_as_they_were():
    configs = [ExactVerifier(kind="exact", answer_tag="정답", deadline_seconds=2), MathVerifier(kind="math")]
    line = opening_line(configs, "/여기")
    assert line.count(b"\n") == 1
    found = read_opening(line)
    assert (found.verifiers, found.folder) == (configs, "/여기")
