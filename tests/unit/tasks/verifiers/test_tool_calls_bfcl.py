"""Every row of BFCL as a gold answer: its own calls pay, each way of spoiling them does not.

Fourteen rows are in tests/golden/bfcl; all 1,498 are read where they stand beside the checkout.
"""

import copy
import json
from collections import Counter
from pathlib import Path

import pytest

from tasks.verifiers.call_kinds import ToolCallsVerifier
from tasks.verifiers.tool_calls import verify
from tasks.verifiers.verdict import ScoreItem

ROOT = Path(__file__).parents[4]
WHOLE = ROOT.parent / "shared" / "data" / "bfcl"
FIXTURE = ROOT / "tests" / "golden" / "bfcl" / "rows.jsonl"
FILES = [FIXTURE, *sorted(WHOLE.glob("*.jsonl"))]


def rows_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def first_value(options):
    return next((value for value in options if value != ""), "")


def rendered(value):
    if isinstance(value, dict):
        return first_arguments(value)
    return [rendered(item) for item in value] if isinstance(value, list) else value


def first_arguments(options_by_key):
    """The first acceptable value of each argument; one for which there is only "" is left out."""
    return {key: rendered(first_value(options)) for key, options in options_by_key.items() if options != [""]}


def first_calls(row):
    return [[name, first_arguments(options)] for each in row["ground_truth"] or [] for name, options in each.items()]


def hermes(calls):
    bodies = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    return (
        "I call.\n" + "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies) if bodies else "No tool fits."
    )


def openai(calls):
    functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
    return json.dumps({"tool_calls": [{"type": "function", "function": each} for each in functions]})


def reward(row, completion, **settings):
    gold = json.dumps({"acceptable": row["ground_truth"] or []})
    return verify(ToolCallsVerifier(kind="tool_calls", **settings), ScoreItem("", gold, completion, {})).reward


def is_unreadable(row):
    """An argument without any acceptable value: BFCL itself accepts nothing there."""
    return any([] in options.values() for each in row["ground_truth"] or [] for options in each.values())


def of_another_type(value):
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float)):
        return str(value)
    return [value] if isinstance(value, str) else json.dumps(value)


def of_another_value(value):
    if isinstance(value, bool) or value is None:
        return "neither"
    if isinstance(value, (int, float)):
        return value + 1000003
    if isinstance(value, str):
        return value + "~"
    return [*value, "~"] if isinstance(value, list) else {**value, "~": 0}


def spoiled(row):
    """(name of the fault, calls) for each argument of each call, and for each call."""
    calls = first_calls(row)
    options = [each for expected in row["ground_truth"] for each in expected.values()]
    for index, (name, arguments) in enumerate(calls):

        def put(new_name, new_arguments, index=index):
            changed = copy.deepcopy(calls)
            changed[index] = [new_name, new_arguments]
            return changed

        yield "other name", put(name + "_", arguments)
        yield "argument too many", put(name, {**arguments, "~": 1})
        for key, value in arguments.items():
            yield "wrong type", put(name, {**arguments, key: of_another_type(value)})
            yield "wrong value", put(name, {**arguments, key: of_another_value(value)})
            if type(value) is int and float(value) not in [v for v in options[index][key] if type(v) is float]:
                yield "float for an integer", put(name, {**arguments, key: float(value)})
            if "" not in options[index][key]:
                yield "missing argument", put(name, {each: arguments[each] for each in arguments if each != key})
        yield "missing call", calls[:index] + calls[index + 1 :]
        yield "doubled call", [*calls, calls[index]]


@pytest.mark.parametrize("shape", [hermes, openai])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_first_acceptable_calls_of_every_row_pay(path, shape):
    counts = Counter(
        "unreadable" if is_unreadable(row) else reward(row, shape(first_calls(row))) for row in rows_of(path)
    )
    assert set(counts) <= {1.0, "unreadable"}
    assert counts["unreadable"] <= 2
    assert counts[1.0] >= 9


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_spoiled_calls_of_any_row_pay(path):
    counts = Counter()
    for row in rows_of(path):
        if row["ground_truth"] is None:
            counts["call where none may be"] += reward(row, hermes([["f", {}]])) == 0.0
        elif not is_unreadable(row):
            for number, (fault, calls) in enumerate(spoiled(row)):
                found = reward(row, (hermes, openai)[number % 2](calls))
                assert found == 0.0, (row["id"], fault, calls)
                counts[fault] += 1
    assert sum(counts.values()) >= len(rows_of(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_spoiled_call_costs_its_share_of_the_fraction(path):
    for row in rows_of(path):
        if row["ground_truth"] is None or is_unreadable(row):
            continue
        calls = first_calls(row)
        most = len(calls)
        assert reward(row, hermes([*calls, *calls]), scoring="fraction") == pytest.approx(0.5), row["id"]
        assert reward(row, hermes([["~", {}], *calls[1:]]), scoring="fraction") == pytest.approx((most - 1) / most)
        assert reward(row, hermes([*calls, ["~", {}]]), scoring="fraction") == pytest.approx(most / (most + 1))


@pytest.mark.parametrize("path", [path for path in FILES if path.stem in ("rows", "parallel", "parallel_multiple")])
def test_parallel_calls_pay_in_any_order_and_in_order_only_where_order_matters(path):
    num_swapped = 0
    for row in rows_of(path):
        calls = first_calls(row)
        if calls == calls[::-1] or is_unreadable(row):
            continue
        assert reward(row, hermes(calls[::-1])) == 1.0, row["id"]
        assert reward(row, hermes(calls), ordered=True) == 1.0, row["id"]
        assert reward(row, hermes(calls[::-1]), ordered=True) == 0.0, row["id"]
        num_swapped += 1
    assert num_swapped >= 4


def test_the_whole_of_bfcl_is_read_where_it_stands_beside_the_checkout():
    if not WHOLE.is_dir():
        pytest.skip("shared/data/bfcl does not stand beside the checkout")
    assert sum(len(rows_of(path)) for path in FILES[1:]) == 1498
