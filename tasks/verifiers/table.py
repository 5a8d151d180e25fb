"""The verifiers by their settings; runs in the verifier processes only."""

from collections.abc import Callable
from typing import Any

from tasks.verifiers import arithmetic_steps, exact, instructions, mathematics, reasoning, tag_format, tool_calls
from tasks.verifiers.answer_kinds import ExactVerifier, MathVerifier, ReasoningGymVerifier
from tasks.verifiers.call_kinds import ToolCallsVerifier
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, FormatVerifier, InstructionsVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict

VERIFIERS: dict[type, Callable[[Any, ScoreItem], Verdict]] = {
    ExactVerifier: exact.verify,
    MathVerifier: mathematics.verify,
    ReasoningGymVerifier: reasoning.verify,
    FormatVerifier: tag_format.verify,
    ArithmeticStepsVerifier: arithmetic_steps.verify,
    ToolCallsVerifier: tool_calls.verify,
    InstructionsVerifier: instructions.verify,
}
