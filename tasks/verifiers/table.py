"""The verifiers by their settings; runs in the verifier processes only."""

from collections.abc import Callable, Sequence
from typing import Any

from tasks.verifiers import (
    arithmetic_steps,
    choice,
    code,
    exact,
    function,
    instructions,
    judge,
    korean,
    mathematics,
    numeric,
    reasoning,
    regex,
    tag_format,
    tool_calls,
)
from tasks.verifiers.answer_kinds import (
    ChoiceVerifier,
    ExactVerifier,
    MathVerifier,
    NumericVerifier,
    ReasoningGymVerifier,
    RegexVerifier,
)
from tasks.verifiers.call_kinds import CodeVerifier, FunctionVerifier, JudgeVerifier, ToolCallsVerifier
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, FormatVerifier, InstructionsVerifier, KoreanVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict

VERIFIERS: dict[type, Callable[[Any, ScoreItem], Verdict]] = {
    ExactVerifier: exact.verify,
    MathVerifier: mathematics.verify,
    NumericVerifier: numeric.verify,
    ChoiceVerifier: choice.verify,
    RegexVerifier: regex.verify,
    ReasoningGymVerifier: reasoning.verify,
    FormatVerifier: tag_format.verify,
    InstructionsVerifier: instructions.verify,
    KoreanVerifier: korean.verify,
    ArithmeticStepsVerifier: arithmetic_steps.verify,
    CodeVerifier: code.verify,
    ToolCallsVerifier: tool_calls.verify,
    FunctionVerifier: function.verify,
    JudgeVerifier: judge.verify,
}

GROUP_VERIFIERS: dict[type, Callable[[Any, Sequence[ScoreItem]], list[Verdict]]] = {
    FunctionVerifier: function.verify_group,
}
"""Those that can be asked about all completions of a prompt at once (``Source.compares_groups``)."""

PREPARATIONS: dict[type, Callable[[Any], None]] = {
    FunctionVerifier: function.prepare,
    JudgeVerifier: judge.prepare,
}
"""What those do before the first row that must not be tried on a made-up one; raises ``CannotStart``."""
