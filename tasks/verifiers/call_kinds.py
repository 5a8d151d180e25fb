"""Settings of the verifiers that run or call something: programs, tools, functions, judges."""

from typing import Literal

from tasks.verifiers.source import Source, named


class ToolCallsVerifier(Source):
    """1.0 when the completion makes the expected tool calls and no others, else 0.0.

    The gold answer is JSON: ``{"calls": [{"name": "f", "arguments": {"x": 1}}]}`` gives exact values;
    ``{"acceptable": [{"f": {"x": [1, 2], "unit": ["km", ""]}}]}`` is BFCL's ``ground_truth`` as it stands, a list of
    acceptable values for each argument, "" among them where it may be left out. An empty list: no call may be made.
    ``"ordered": true`` or ``false`` beside it overrides the setting for that row.
    """

    kind: Literal["tool_calls"]
    name: str = named("tool_calls")
    ordered: bool = False
    """Whether the calls must come in the order of the gold answer."""
    strings: Literal["exact", "relaxed"] = "exact"
    """"relaxed": as in BFCL, case, spaces and the characters ,./-_*^ do not matter, ' is "."""
    scoring: Literal["all", "fraction"] = "all"
    """"fraction": matched calls / the larger number of the expected and the given ones, so that each call too many costs."""
    surroundings: Literal["text", "nothing"] = "text"
    """"nothing": after the reasoning the completion holds its calls and white space only; where no call may be made, any
    text is an answer."""
    reasoning_end: str = "</think>"
    """A call before the last of these, or in a reasoning that never ends, is a thought; "" looks everywhere."""
