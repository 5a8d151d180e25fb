"""Every kind of verifier, told apart by ``kind``."""

from typing import Annotated

from pydantic import Field

from tasks.verifiers.answer_kinds import ExactVerifier, MathVerifier, ReasoningGymVerifier
from tasks.verifiers.call_kinds import FunctionVerifier, JudgeVerifier
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, FormatVerifier

VerifierConfig = Annotated[
    ExactVerifier
    | MathVerifier
    | ReasoningGymVerifier
    | FormatVerifier
    | ArithmeticStepsVerifier
    | FunctionVerifier
    | JudgeVerifier,
    Field(discriminator="kind"),
]
