"""What crosses between a program and its tests, and which names of the tests are the program's."""

import collections
import json
import marshal
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verifiers.sandboxed.names import program_names
from tasks.verifiers.sandboxed.remote import Connection, Remote, RemoteFailure, RemoteName, Untestable
from tasks.verifiers.sandboxed.values import MAX_DEPTH, Codec, NotPlain, TooLarge, text_of

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.complex_numbers(allow_nan=False)
    | st.fractions() | st.decimals(allow_nan=False) | st.integers(-(2**200), 2**200),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.lists(inner).map(collections.deque)
    | st.dictionaries(st.text() | st.integers(), inner) | st.sets(st.integers() | st.text()) | st.frozensets(st.binary()),
    max_leaves=20,
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    | st.tuples(st.sampled_from(["list", "dict", "set", "int", "bytes", "handle", "range", "complex", "Counter", "Decimal"]),
                inner).map(list),
    max_leaves=20,
)  # fmt: skip


def refuse(value):
    raise NotPlain("a handle")


CODEC = Codec(refuse, refuse)


def crossed(value):
    return CODEC.decode(json.loads(text_of(CODEC.encode(value))))


def exact(value):
    """The types of a value, all the way down."""
    if isinstance(value, dict):
        return type(value), [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value), [exact(item) for item in value]
    return type(value), sorted(map(str, map(type, value))) if isinstance(value, (set, frozenset)) else None


@given(PLAIN)
def test_a_plain_value_arrives_with_its_types(value):
    assert crossed(value) == value
    assert exact(crossed(value)) == exact(value)


@pytest.mark.parametrize(
    "value",
    [2**62, -(2**62), 2**62 - 1, 10**4000, -0.0, 1e-320, float("inf"), "\ud800", "\x00", range(1, 9, 2), bytearray(b"\xff"),
     collections.Counter("aab"), collections.OrderedDict(a=1), Fraction(1, 3), Decimal("0.10"), {(1, 2): [3]}, True],
)  # fmt: skip
def test_rarer_values_arrive_too(value):
    assert repr(crossed(value)) == repr(value)


def test_a_default_dict_arrives_without_what_makes_its_defaults():
    arrived = crossed(collections.defaultdict(list, {1: [2]}))
    assert (type(arrived), dict(arrived), arrived.default_factory) == (collections.defaultdict, {1: [2]}, None)


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize("value", [Liar(1), [Liar(1)], {Liar(1): 2}, type("L", (list,), {})(), object(), print, Liar])
def test_a_value_of_a_derived_class_does_not_cross(value):
    with pytest.raises(NotPlain):
        CODEC.encode(value)


@given(JSON)
def test_whatever_is_decoded_is_plain_or_refused(value):
    try:
        found = CODEC.decode(value)
    except NotPlain:
        return
    sent = CODEC.encode(found)
    assert CODEC.encode(CODEC.decode(sent)) == sent


def test_depth_and_size_have_limits_on_both_sides():
    deep = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(TooLarge):
        CODEC.encode(deep)
    wire = ["list"]
    for _ in range(MAX_DEPTH + 1):
        wire = ["list", wire]
    with pytest.raises(TooLarge):
        CODEC.decode(wire)
    with pytest.raises(TooLarge):
        CODEC.encode([0] * 1_000_001)


def answering(*replies):
    """A connection to a candidate that gives these replies, and the requests that it got."""
    requests, left = [], list(replies)

    def exchange(line):
        requests.append(marshal.loads(bytes.fromhex(line)))
        return left.pop(0) if isinstance(left[0], str) else json.dumps(left.pop(0))

    return Connection(exchange), requests


HANDLE = {"value": ["handle", 0]}


def test_a_stand_in_asks_once_for_its_function_and_once_for_each_call():
    connection, requests = answering(HANDLE, {"value": 3}, {"value": 4})
    function = RemoteName(connection, "f")
    assert (function(1, b=[2]), function()) == (3, 4)
    assert [each["operation"] for each in requests] == ["name", "call", "call"]
    assert requests[1]["arguments"] == ["tuple", ["handle", 0], ["tuple", 1], ["dict", ["b", ["list", 2]]]]


@pytest.mark.parametrize(
    "decide",
    [lambda it: it == 1, lambda it: it != 1, bool, lambda it: it in [1], hash, lambda it: abs(it - 1) < 1, lambda it: it < 2,
     lambda it: not it, lambda it: [it] == [1], lambda it: {it}, lambda it: it is True or it == 1, lambda it: isinstance(1, it),
     int, float, lambda it: sum(it + 1)],
)  # fmt: skip
def test_an_object_of_the_program_decides_nothing(decide):
    connection, _ = answering(*[{"value": True}] * 9)
    with pytest.raises((RemoteFailure, TypeError)):
        decide(Remote(connection, 0))


@pytest.mark.parametrize(
    ("reply", "raised"),
    [
        ({"raised": "ValueError", "message": "no"}, ValueError), ({"raised": "KeyError", "message": ""}, KeyError),
        ({"raised": "UnicodeDecodeError", "message": ""}, UnicodeDecodeError), ({"raised": "SystemExit", "message": "0"}, RemoteFailure),
        ({"raised": "KeyboardInterrupt", "message": ""}, RemoteFailure), ({"raised": "print", "message": ""}, RemoteFailure),
        ({"raised": "Own", "message": ""}, RemoteFailure), ({"raised": "ExceptionGroup", "message": ""}, Exception),
        ("", RemoteFailure), ("[" * 10**5, RemoteFailure), ("[]", RemoteFailure), ("3", RemoteFailure), ("{}", RemoteFailure),
        ({"value": {"a": 1}}, RemoteFailure), ({"value": ["list", ["what", 1]]}, RemoteFailure),
    ],
)  # fmt: skip
def test_what_the_program_raises_or_writes_is_an_exception_of_the_tests_that_is_known_as_the_programs(reply, raised):
    connection, _ = answering(reply)
    with pytest.raises(raised) as caught:
        connection.request("name", "f")
    assert connection.has_raised(caught.value)
    assert not connection.has_raised(ValueError("no"))


def test_a_function_as_argument_is_the_tests_fault_and_a_value_too_deep_the_programs():
    connection, requests = answering()
    with pytest.raises(Untestable):
        connection.request("call", print)
    with pytest.raises(RemoteFailure):
        connection.request("call", [0] * 1_000_001)
    assert requests == []


@pytest.mark.parametrize(
    ("setup", "tests", "names", "modules"),
    [
        ([], ["assert f(1) == 2"], {"f"}, set()),
        ([], ["assert set(f([1])) == {1}"], {"f"}, set()),
        (["root = Node(1)"], ["assert depth(root) == 1"], {"Node", "depth"}, set()),
        (["def given(x): return x"], ["assert f(given(1)) == 2"], {"f"}, set()),
        ([], ["assert math.isclose(f(1), 2)"], {"f"}, {"math"}),
        (["import math"], ["assert math.isclose(f(1), 2)"], {"f"}, set()),
        ([], ["assert sum(10, 15) == 6"], {"sum"}, set()),
        ([], ["assert (max(1, abs(2))) == 2"], {"max"}, set()),
        ([], ["for i in range(3):\n    assert f(i) == g(i)"], {"f", "g"}, set()),
        ([], ["try:\n    f()\nexcept ValueError as error:\n    assert str(error)"], {"f"}, set()),
        ([], ["assert string(1) == 's'"], {"string"}, set()),
        ([], ["assert True"], set(), set()),
    ],
)  # fmt: skip
def test_what_nothing_else_defines_is_the_programs(setup, tests, names, modules):
    assert program_names(setup, tests) == (names, modules)
