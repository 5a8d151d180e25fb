"""Every kind of verifier, told apart by ``kind``."""

from typing import Annotated

from pydantic import Field

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

VerifierConfig = Annotated[
    ExactVerifier
    | MathVerifier
    | NumericVerifier
    | ChoiceVerifier
    | RegexVerifier
    | ReasoningGymVerifier
    | FormatVerifier
    | InstructionsVerifier
    | KoreanVerifier
    | ArithmeticStepsVerifier
    | CodeVerifier
    | ToolCallsVerifier
    | FunctionVerifier
    | JudgeVerifier,
    Field(discriminator="kind"),
]
