"""The verifiers by their settings; runs in the verifier processes only."""

from collections.abc import Callable, Sequence
from typing import Any

from tasks.verifiers import arithmetic_steps, exact, function, judge, mathematics, reasoning, tag_format
from tasks.verifiers.answer_kinds import ExactVerifier, MathVerifier, ReasoningGymVerifier
from tasks.verifiers.call_kinds import FunctionVerifier, JudgeVerifier
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, FormatVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict

VERIFIERS: dict[type, Callable[[Any, ScoreItem], Verdict]] = {
    ExactVerifier: exact.verify,
    MathVerifier: mathematics.verify,
    ReasoningGymVerifier: reasoning.verify,
    FormatVerifier: tag_format.verify,
    ArithmeticStepsVerifier: arithmetic_steps.verify,
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
