"""Tool calls compared with the expected ones."""

from collections.abc import Sequence

from tasks.verifiers.call_expectation import (
    Expectation,
    SameText,
    UnreadableGold,
    read_gold,
    same_exactly,
    same_relaxed,
)
from tasks.verifiers.call_kinds import ToolCallsVerifier
from tasks.verifiers.call_reading import Call, Malformed, read_calls
from tasks.verifiers.extraction import after_reasoning
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored

SAME_TEXT: dict[str, SameText] = {"exact": same_exactly, "relaxed": same_relaxed}


def verify(config: ToolCallsVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the calls after the reasoning are the expected ones, each once and none beside them, else 0.0.

    Calls and expectations are matched one to one: without order by a maximum matching (an early call never takes the
    only partner of a later one), in order by position. With scoring "fraction" the reward is the number of matched
    calls (in order: of the longest common subsequence) / the larger of both numbers. A call that can not be read makes
    the whole completion 0, whatever the scoring: nothing would run it. Where no call may be made, saying nothing is 0 too,
    and so is a completion that the token limit cut: its call may have been still to come.

    Source: BFCL's AST evaluation (Patil et al., ICML 2025; ShishirPatil/gorilla, ``ast_checker.py``): name, argument
    types and values, "" for what may be left out, parallel calls without order. Ours differ: the schema is not consulted
    (types are those of the gold values, an argument may be left out only where "" says so), a value inside a list or an
    object is compared as strictly as outside, and matching is not greedy.
    """
    try:
        expected, ordered = read_gold(item.answer)
    except UnreadableGold as error:
        return unscored(str(error))
    reply = after_reasoning(item.completion, config.reasoning_end)
    try:
        reading = read_calls(reply)
    except Malformed as error:
        return scored(0.0, str(error))
    calls = reading.calls
    if not expected:
        return _without_calls(reply, calls, item.is_truncated)
    if not calls:
        return scored(0.0, "no tool is called")
    if config.surroundings == "nothing" and not reading.is_alone:
        return scored(0.0, "text stands around the calls")
    if config.scoring == "all" and len(calls) != len(expected):
        return scored(0.0, f"{len(calls)} calls, not {len(expected)}")
    same_text = SAME_TEXT[config.strings]
    is_ordered = config.ordered if ordered is None else ordered
    matched = (in_order if is_ordered else one_to_one)(expected, calls, same_text)
    most = max(len(calls), len(expected))
    if matched == most:
        return scored(1.0)
    return scored(matched / most if config.scoring == "fraction" else 0.0, _fault(expected, calls, matched, same_text))


def _without_calls(reply: str, calls: Sequence[Call], is_truncated: bool) -> Verdict:
    if calls:
        return scored(0.0, f"{calls[0].name[:40]!r} is called where no call may be made")
    if is_truncated:
        return scored(0.0, "cut before its end, so a call may have been to come")
    return scored(1.0) if reply.strip() else scored(0.0, "nothing is said")


def one_to_one(expected: Sequence[Expectation], calls: Sequence[Call], same_text: SameText) -> int:
    """The size of a maximum matching of expectations with the calls that meet them.

    Source: Kuhn's augmenting paths, "The Hungarian method for the assignment problem", 1955.
    """
    partners = [[index for index, call in enumerate(calls) if each.is_met_by(call, same_text)] for each in expected]
    taken_by: dict[int, int] = {}

    def finds_partner(position: int, tried: set[int]) -> bool:
        for index in partners[position]:
            if index in tried:
                continue
            tried.add(index)
            if index not in taken_by or finds_partner(taken_by[index], tried):
                taken_by[index] = position
                return True
        return False

    return sum(finds_partner(position, set()) for position in range(len(expected)))


def in_order(expected: Sequence[Expectation], calls: Sequence[Call], same_text: SameText) -> int:
    """The length of the longest common subsequence: calls that meet expectations in the same order."""
    previous = [0] * (len(calls) + 1)
    for each in expected:
        current = [0]
        for index, call in enumerate(calls):
            both = previous[index] + 1 if each.is_met_by(call, same_text) else 0
            current.append(max(both, previous[index + 1], current[index]))
        previous = current
    return previous[-1]


def _fault(expected: Sequence[Expectation], calls: Sequence[Call], matched: int, same_text: SameText) -> str:
    """What is wrong, with the first call that meets no expectation."""
    for call in calls:
        if not any(each.is_met_by(call, same_text) for each in expected):
            return f"{matched} of {len(expected)} calls are right; {call.name[:40]!r} with {str(call.arguments)[:120]!r} is not"
    return f"{matched} of {len(expected)} calls are right; the others are doubled or out of order"
