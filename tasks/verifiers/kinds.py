"""Every kind of verifier, told apart by ``kind``."""

from typing import Annotated

from pydantic import Field

from tasks.verifiers.answer_kinds import ExactVerifier, MathVerifier, ReasoningGymVerifier
from tasks.verifiers.call_kinds import CodeVerifier, ToolCallsVerifier
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, FormatVerifier, InstructionsVerifier, KoreanVerifier

VerifierConfig = Annotated[
    ExactVerifier
    | MathVerifier
    | ReasoningGymVerifier
    | FormatVerifier
    | InstructionsVerifier
    | KoreanVerifier
    | ArithmeticStepsVerifier
    | CodeVerifier
    | ToolCallsVerifier,
    Field(discriminator="kind"),
]
