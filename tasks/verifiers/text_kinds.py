"""Settings of the verifiers that look at how a completion is written: its tags, its steps, its language."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen
from tasks.verifiers.source import Source, named


class NewlineSplit(Frozen):
    """Each line is a step; blank lines join the step before them."""

    kind: Literal["newline"]


class SeparatorSplit(Frozen):
    """A step ends after any of the separators, the longest where several match."""

    kind: Literal["separator"]
    separators: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)


class TagSplit(Frozen):
    """A step ends with each <tag>...</tag> block."""

    kind: Literal["tag"]
    tag: str = Field(pattern=r"^[^<>/\s]+$")


StepSplit = Annotated[NewlineSplit | SeparatorSplit | TagSplit, Field(discriminator="kind")]
"""The ways that need nothing but the text."""


class FormatVerifier(Source):
    """1.0 when each tag stands exactly once, in order, filled, with nothing around, else 0.0."""

    kind: Literal["format"]
    name: str = named("format")
    weight: float = 0.1
    tags: tuple[Annotated[str, Field(pattern=r"^[^<>/\s]+$")], ...] = Field(default=("think", "answer"), min_length=1)

    @model_validator(mode="after")
    def _check(self) -> "FormatVerifier":
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"tags {list(self.tags)} name a tag twice, but each must stand exactly once; remove one")
        return self


class StepVerifier(Source):
    """What every verifier has that rewards each step of a completion."""

    split: StepSplit


class ArithmeticStepsVerifier(StepVerifier):
    """For chain arithmetic: every shown step 1.0 when it is right and goes on from the one before, else 0.0.

    The reward is the mean of the steps; weight 0 leaves it out of the total, where the process is supervised instead.
    """

    kind: Literal["arithmetic_steps"]
    name: str = named("steps")
    weight: float = 0.0
    answer_tag: str = Field(default="answer", min_length=1)
    split: StepSplit = SeparatorSplit(kind="separator", separators=(",", "</think>"))


KoreanCheck = Literal["hangul", "scripts", "speech_level", "spacing"]
MORPHEME_CHECKS = frozenset({"speech_level", "spacing"})
"""Those that need the extra ``korean``."""
SpeechLevel = Literal["hapsyo", "haeyo", "hae", "haera"]
"""합쇼체 (-습니다), 해요체 (-아요), 해체 (-아), 해라체 (-다)."""


class KoreanVerifier(Source):
    """Is it written in good Korean? Up to four checks of the prose; code, mathematics, tags and addresses are left out.

    A text that fails ``hangul`` is not Korean and gets 0.0 whatever else was asked. ``speech_level`` and ``spacing`` need the
    extra ``korean`` (kiwipiepy).
    """

    kind: Literal["korean"]
    name: str = named("korean")
    weight: float = 0.2
    checks: tuple[KoreanCheck, ...] = Field(default=("hangul", "scripts", "speech_level", "spacing"), min_length=1)
    scoring: Literal["all", "share"] = "all"
    """all: 1.0 when every check passes, else 0.0. share: the share of the checks that pass."""
    reasoning_end: str = ""
    """What precedes the last of these is not judged ("</think>"); "" judges the whole completion."""
    min_hangul_share: float = Field(default=0.5, gt=0, le=1)
    """hangul: least share of Hangul among the letters."""
    allowed_scripts: tuple[Literal["greek", "han", "kana", "cyrillic", "other"], ...] = ("greek",)
    """scripts: those that may stand beside Hangul and Latin."""
    max_foreign_letters: int = Field(default=0, ge=0)
    """scripts: most letters of the scripts that are not allowed."""
    max_latin_run: int = Field(default=3, ge=0)
    """scripts: most Latin words in a row. A single letter is a variable, not a word."""
    max_latin_share: float = Field(default=0.25, ge=0, le=1)
    """scripts: largest share of Latin words among all words."""
    allowed_words: tuple[str, ...] = ()
    """scripts: Latin words that count as Korean, in any case ("GPU")."""
    speech_level: Literal["any"] | SpeechLevel = "any"
    """speech_level: the level that the sentences must keep to; any: one of the four, the same throughout."""
    min_level_share: float = Field(default=0.8, gt=0.5, le=1)
    """speech_level: least share of the sentences that keep to it, of those whose ending shows a level."""
    max_spacing_errors: float = Field(default=0.4, ge=0, le=1)
    """spacing: largest share of wrong spaces; see ``tasks/verifiers/spacing.py``."""
    max_analysed_characters: int = Field(default=8000, ge=200)
    """speech_level and spacing read the completion as far as this; it bounds their time."""

    @model_validator(mode="after")
    def _check(self) -> "KoreanVerifier":
        if len(set(self.checks)) < len(self.checks):
            raise ValueError(f"checks {list(self.checks)} names one twice")
        for check, settings in KOREAN_SETTINGS.items():
            idle = [name for name in settings if getattr(self, name) != type(self).model_fields[name].default]
            if idle and not set(check) & set(self.checks):
                raise ValueError(
                    f"{', '.join(idle)} has no meaning without check {' or '.join(check)}; add it to checks"
                )
        return self


KOREAN_SETTINGS: dict[tuple[KoreanCheck, ...], tuple[str, ...]] = {
    ("hangul",): ("min_hangul_share",),
    ("scripts",): ("allowed_scripts", "max_foreign_letters", "max_latin_run", "max_latin_share", "allowed_words"),
    ("speech_level",): ("speech_level", "min_level_share"),
    ("spacing",): ("max_spacing_errors",),
    ("speech_level", "spacing"): ("max_analysed_characters",),
}
"""Checks and the settings that mean something with one of them only."""


class InstructionsVerifier(Source):
    """1.0 when the completion follows every instruction that a rule can check (those of IFEval), else 0.0.

    The gold answer is JSON: ``{"instructions": [{"id": "keywords:existence", "keywords": ["a"]}, ...]}``; a row of IFEval
    (``instruction_id_list`` and ``kwargs``) is read as it stands, there or in the prompt's metadata.
    """

    kind: Literal["instructions"]
    name: str = named("instructions")
    mode: Literal["strict", "loose"] = "strict"
    """"loose": an instruction is followed when the text follows it with or without asterisks, first and last line."""
    scoring: Literal["all", "fraction"] = "all"
    """"fraction": the share of the instructions that are followed."""
    reasoning_end: str = "</think>"
    """What precedes the last of these is not looked at; "" looks at everything."""
