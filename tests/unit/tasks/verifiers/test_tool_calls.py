"""Tool calls: any text is read, matching is one to one, and a long text takes seconds at most."""

import json
import time
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verifiers.call_expectation import Expectation, is_same, read_gold, same_exactly, same_relaxed
from tasks.verifiers.call_kinds import ToolCallsVerifier
from tasks.verifiers.call_reading import Call, Malformed, read_calls
from tasks.verifiers.strict_json import MAX_DEPTH, NotJson, read_json
from tasks.verifiers.tool_calls import in_order, one_to_one, verify
from tasks.verifiers.verdict import ScoreItem

GOLD = '{"calls": [{"name": "f", "arguments": {"x": 1}}]}'
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
arguments = st.dictionaries(st.text(), values, max_size=4)
calls_of = st.lists(st.tuples(st.text(min_size=1), arguments), min_size=1, max_size=4)
pieces = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "f", "arguments": {"x": 1}}', '{"tool_calls": [',
     '[{"type": "function", "function": {', '"arguments": "{}"', "]}", "}", '"', "\\", "NaN", "\x00", "\ud800", " ", "a"]
)  # fmt: skip
shapeless = st.lists(pieces | st.text(), max_size=12).map("".join)


def verdict(completion, gold=GOLD, *, is_truncated=False, **settings):
    config = ToolCallsVerifier(kind="tool_calls", **settings)
    return verify(config, ScoreItem("", gold, completion, {}, is_truncated))


@given(shapeless, st.sampled_from(["all", "fraction"]), st.sampled_from(["text", "nothing"]))
def test_any_text_is_scored_between_0_and_1(text, scoring, surroundings):
    found = verdict(text, scoring=scoring, surroundings=surroundings)
    assert found.status == "scored"
    assert 0 <= found.reward <= 1


@given(shapeless | values.map(json.dumps))
def test_any_gold_answer_is_read_or_unscored(gold):
    assert verdict(CALL, gold).status in ("scored", "unscored")


@given(calls_of)
def test_every_gold_answer_accepts_itself_in_both_shapes(calls):
    gold = json.dumps({"calls": [{"name": name, "arguments": given} for name, given in calls]})
    tagged = "".join(f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>" for n, a in calls)
    functions = [{"type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for n, a in calls]
    for text in (tagged, json.dumps({"tool_calls": functions}), json.dumps(functions)):
        for ordered in (True, False):
            assert verdict(text, gold, ordered=ordered, surroundings="nothing", reasoning_end="").reward == 1.0


@given(values, values)
def test_two_values_are_the_same_only_when_their_json_is_but_for_integers_where_floats_are_expected(gold, other):
    assert is_same(gold, gold, same_exactly)
    if is_same(gold, other, same_exactly):
        assert gold == other  # also where an integer stands for a float
    elif json.dumps(gold, sort_keys=True) == json.dumps(other, sort_keys=True):
        raise AssertionError((gold, other))


@given(st.lists(st.sets(st.integers(0, 3)), max_size=4), st.integers(0, 4))
def test_the_matching_is_the_largest_of_all_assignments(wishes, num_calls):
    expected = [Expectation("f", {"x": sorted(wish) or ["none"]}, exact=False) for wish in wishes]
    calls = [Call("f", {"x": value}) for value in range(num_calls)]
    best = max(
        sum(
            position < len(expected) and each.is_met_by(calls[index], same_exactly)
            for index, position in enumerate(order[:num_calls])
            if position < len(expected)
            for each in [expected[position]]
        )
        for order in permutations(range(max(len(expected), num_calls)))
    )
    assert one_to_one(expected, calls, same_exactly) == best


def test_an_early_call_gives_its_partner_up_to_a_later_one():
    expected, _ = read_gold('{"acceptable": [{"f": {"x": [1, 2]}}, {"f": {"x": [1]}}]}')
    calls = [Call("f", {"x": 1}), Call("f", {"x": 2})]
    assert one_to_one(expected, calls, same_exactly) == 2
    assert in_order(expected, calls, same_exactly) == 1


def test_calls_in_order_are_the_longest_common_subsequence():
    expected = [Expectation("f", {"x": value}, exact=True) for value in (1, 2, 3, 4)]
    assert in_order(expected, [Call("f", {"x": value}) for value in (2, 1, 3, 9, 4)], same_exactly) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [('{"a": 1, "a": 1}', "twice"), ("NaN", "NaN"), ("[-Infinity]", "Infinity"), ("1e999", "too large"), ("[1] 2", "after"),
     ("[" * 100_000, "nested"), ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested"), ("9" * 5000, "digits"), ("{'a'", "character 1")]
)  # fmt: skip
def test_what_pythons_parser_lets_through_is_not_json(text, reason):
    with pytest.raises(NotJson, match=reason):
        read_json(text)


def test_json_as_deep_as_the_limit_is_read():
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(read_json(text)) == text


@given(st.text())
def test_any_text_is_json_or_not_and_nothing_else_is_raised(text):
    try:
        assert read_json(json.dumps(read_json(text))) == read_json(text)
    except NotJson:
        pass


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CALL + "<tool_call>", "not JSON"),
        (CALL + "<tool_call>{}</tool_call>", "no name"),
        (CALL[:-1], "not closed"),
        ("</tool_call>" + CALL, "no <tool_call>"),
        ('<tool_call>{"name": "f", "arguments": []}</tool_call>', "not an object"),
        ('<tool_call>{"name": "f", "arguments": {}, "x": 1}</tool_call>', "key 'x'"),
        ("<tool_call>[1]</tool_call>", "no name"),
        ('{"tool_calls": 1}', "not a list"),
        ('{"tool_calls": [1]}', "no function"),
        ('{"tool_calls": [{"function": {"name": "f", "arguments": "{}"}, "x": 1}]}', "key 'x'"),
        ('{"tool_calls": [{"type": "x", "function": {"name": "f", "arguments": "{}"}}]}', "not function"),
        ('{"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}', "not JSON text"),
        (CALL + '{"tool_calls": []}', "two shapes"),
        ('a {"tool_calls": []} {"tool_calls": []}', "two places"),
    ],
)
def test_a_call_that_nothing_could_run_names_what_is_wrong(text, reason):
    with pytest.raises(Malformed, match=reason):
        read_calls(text)
    assert verdict(text).reward == 0.0
    assert verdict(text, '{"calls": []}').reward == 0.0


@pytest.mark.parametrize(
    "text", ['{"tool_calls": null}', '{"tool_calls": []}', "[]", '[{"id": 1}]', '{"name": "f"}', "7"]
)
def test_other_json_is_an_answer_without_calls(text):
    assert read_calls(text).calls == ()
    assert verdict(text, '{"calls": []}').reward == 1.0


def test_a_completion_that_was_cut_does_not_pass_for_one_that_calls_nothing():
    assert verdict("I can not", '{"calls": []}', is_truncated=True).reward == 0.0
    assert verdict(" ", '{"calls": []}').reward == 0.0
    assert verdict("I can not", '{"calls": []}').reward == 1.0
    assert verdict(CALL, is_truncated=True).reward == 1.0


@pytest.mark.parametrize(
    ("given", "is_equal"),
    [("April 1, 2024", True), ("april 1 2024", True), ("4/1/2024", False), ("a'b", False)],
)
def test_relaxed_strings_are_compared_as_in_bfcl(given, is_equal):
    assert same_relaxed("April 1,2024", given) is is_equal
    assert same_relaxed("it's *a_b^c-d", 'IT"SABCD')


LONG = 1_000_000
LONG_TEXTS = {
    "openings": "<tool_call>" * (LONG // 11),
    "closings": "</tool_call>" * (LONG // 12),
    "calls": CALL * (LONG // len(CALL)),
    "brackets": "[" * LONG,
    "braces": '{"a":' * (LONG // 5),
    "spaced braces": "{ " * (LONG // 2),
    "openai openings": '{"tool_calls":' * (LONG // 14),
    "ids": '[{"id":"' * (LONG // 8),
    "spaces": "[{" + " " * LONG,
    "open string": '<tool_call>{"name": "' + "a" * LONG,
    "escapes": '<tool_call>{"name": "' + "\\" * LONG,
    "digits": '<tool_call>{"name": "f", "arguments": {"x": ' + "9" * LONG,
    "think": "<think>" * (LONG // 7),
    "wide": '<tool_call>{"name": "f", "arguments": {' + ",".join(f'"{i}":{i}' for i in range(LONG // 12)) + "}}</tool_call>",
}  # fmt: skip


@pytest.mark.parametrize("name", LONG_TEXTS)
@pytest.mark.parametrize(
    "gold", [GOLD, json.dumps({"calls": [{"name": "f", "arguments": {"x": i}} for i in range(8)]})]
)
def test_a_text_of_a_million_characters_takes_seconds_at_most(name, gold):
    began = time.process_time()  # the machine may be busy with other things
    found = verdict(LONG_TEXTS[name], gold, scoring="fraction")
    assert time.process_time() - began < 5
    assert found.status == "scored"
    assert found.reward < 0.01
