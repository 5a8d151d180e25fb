"""Which verifiers score a completion, and how their rewards add up."""

from typing import Any

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen
from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.text_kinds import StepVerifier

MODEL = "reward_model"
RESERVED_SOURCES = {MODEL, "step", "num_steps", "step_reward"}


class ScoringConfig(Frozen):
    """The reward of a completion: the weighted sum of its sources.

    A source that fails on a row (``error``, ``timeout``) leaves the row without a reward; a source that does not apply
    (``unscored``) is left out of the sum; a row that no source scored has no reward. No reward is not 0.
    """

    verifiers: tuple[VerifierConfig, ...] = Field(min_length=1)
    correctness: str
    """Name of the verifier that decides whether a completion is correct (its reward >= 1)."""
    process: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """Name of the verifier whose step rewards supervise the process, or "reward_model" where that is a process reward
    model; None rewards outcomes only. Left out of what is recorded when None, so that tables and lineages from before
    there was this setting are found again."""
    reward_model_weight: float = 0.0
    """Weight of the reward model's probability sigmoid(score). 0: scored and recorded, but it does not count."""
    num_workers: int = Field(default=1, ge=1, le=64)
    """Verifier child processes."""
    row_deadline_seconds: float = Field(default=5.0, gt=0)
    """A row that takes longer has its process killed and status ``timeout``; a verifier's deadline_seconds goes before."""
    max_failed_share: float = Field(default=0.05, ge=0, le=1)
    """Share of a source's rows with status ``error`` or ``timeout`` above which the stage fails, as soon as that is certain;
    or when each of its first 64 rows failed, unless this is 1."""

    @model_validator(mode="before")
    @classmethod
    def _name_the_cure(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("verifiers") in ([], ()):
            raise ValueError(
                "at least one verifier is needed: it labels the reward model's samples and evaluates the policy"
            )
        return values

    @model_validator(mode="after")
    def _check(self) -> "ScoringConfig":
        names = [verifier.name for verifier in self.verifiers]
        if len(set(names)) < len(names):
            raise ValueError(f"verifier names must differ, not {names}; set name")
        if taken := RESERVED_SOURCES.intersection(names):
            raise ValueError(f"verifier names {sorted(taken)} are taken; set another name")
        if self.correctness not in names:
            raise ValueError(f"correctness {self.correctness!r} names no verifier; there are {names}")
        if self.process not in (None, MODEL):
            self._check_process(names)
        for verifier in self.verifiers:
            allowed = verifier.deadline_seconds or self.row_deadline_seconds
            if verifier.longest_seconds > allowed:
                raise ValueError(
                    f"verifier {verifier.name!r} may take {verifier.longest_seconds:g} s for a row by its own settings, but "
                    f"the row is stopped after {allowed:g} s, without a reward; set its deadline_seconds (or "
                    "row_deadline_seconds) above that, or lower its time limits"
                )
        return self

    def _check_process(self, names: list[str]) -> None:
        giving = [verifier.name for verifier in self.verifiers if isinstance(verifier, StepVerifier)]
        if self.process not in giving:
            fault = "gives no steps" if self.process in names else f"names no verifier; there are {names}"
            cure = f"name {' or '.join(giving)}" if giving else 'add { kind = "arithmetic_steps" } to the verifiers'
            raise ValueError(f"process {self.process!r} {fault}; {cure}, or leave process out")

    @property
    def sources(self) -> tuple[str, ...]:
        """The reward sources in column order: verifiers, then the reward model."""
        return (*(verifier.name for verifier in self.verifiers), MODEL)

    @property
    def weights(self) -> dict[str, float]:
        """The sources that count towards the reward, by name: those whose weight is not 0."""
        every = [*(verifier.weight for verifier in self.verifiers), self.reward_model_weight]
        return {name: weight for name, weight in zip(self.sources, every, strict=True) if weight != 0}

    def correctness_only(self) -> "ScoringConfig":
        """The same, less every source but the one that decides correctness."""
        deciding = tuple(verifier for verifier in self.verifiers if verifier.name == self.correctness)
        return self.model_copy(update={"verifiers": deciding, "process": None, "reward_model_weight": 0.0})
