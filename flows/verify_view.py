"""One completion scored by hand: what `igrpo verify` prints."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from flows.recipes import RecipeError, apply_override, load_recipe, readable
from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.totals import combine
from tasks.verifiers.verdict import ScoreItem, Verdict

DEADLINE_SECONDS = 5.0
DECIDED = ("scored", "unscored")


@dataclass(frozen=True)
class Trial:
    """What was asked for: the verifiers, and the deadline of those that have none of their own."""

    verifiers: tuple[VerifierConfig, ...]
    deadline_seconds: float
    scoring: ScoringConfig | None = None
    """The recipe's, where the verifiers are those of a recipe: then there is a total."""


def trial_of_kind(kind: str, overrides: Sequence[str], deadline_seconds: float) -> Trial:
    """One verifier with its defaults and KEY=VALUE changes.

    Raises:
        RecipeError: no such kind, or wrong settings; names them.
    """
    settings: dict[str, Any] = {"kind": kind}
    for override in overrides:
        apply_override(settings, override)
    try:
        verifier = TypeAdapter[VerifierConfig](VerifierConfig).validate_python(settings)
    except ValidationError as error:
        raise RecipeError(f"verifier {kind!r} has wrong settings:\n{readable(error)}") from error
    return Trial((verifier,), deadline_seconds)


def trial_of_recipe(recipe: str, overrides: Sequence[str], deadline_seconds: float | None) -> Trial:
    """The verifiers of a recipe with its KEY=VALUE changes, and their weights."""
    scoring = load_recipe(recipe, list(overrides)).scoring
    return Trial(scoring.verifiers, deadline_seconds or scoring.row_deadline_seconds, scoring)


def completion_of(text: str) -> str:
    """The text itself, that of a file (@path), or what comes in on standard input (-).

    Raises:
        RecipeError: there is no such file.
    """
    if text == "-":
        return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise RecipeError(
            f"--completion {text}: {error}; a text that begins with @ goes through standard input"
        ) from error


def metadata_of(text: str) -> dict[str, Any]:
    """The prompt's other columns, a JSON object."""
    try:
        metadata = json.loads(text)
    except ValueError as error:
        raise RecipeError(f"--metadata is not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise RecipeError(f"--metadata is a {type(metadata).__name__}, not a JSON object of columns")
    return metadata


def show_verdicts(out: Console, trial: Trial, item: ScoreItem) -> bool:
    """Score the completion in the process that scores runs too, and print it; whether every verifier decided."""
    with VerifierPool(trial.verifiers, 1, trial.deadline_seconds) as pool:
        (verdicts,) = pool.score([item], lambda done, total: None)
    for verifier, verdict in zip(trial.verifiers, verdicts, strict=True):
        if trial.scoring is not None:
            _line(out, f"verifier: {verifier.name} (weight {verifier.weight:g})")
        _show(out, verdict)
        if trial.scoring is not None:
            _line(out, "")
    if trial.scoring is not None:
        named = {verifier.name: verdict for verifier, verdict in zip(trial.verifiers, verdicts, strict=True)}
        without = " (without the reward model)" if trial.scoring.reward_model_weight else ""
        _line(out, f"total{without}: {_number(combine(named, trial.scoring.weights))}")
    return all(verdict.status in DECIDED for verdict in verdicts)


def _show(out: Console, verdict: Verdict) -> None:
    _line(out, f"reward: {_number(verdict.reward)}")
    _line(out, f"status: {verdict.status}")
    _line(out, f"reason: {verdict.reason}".rstrip())
    for end, reward in verdict.steps:
        _line(out, f"step up to character {end}: {reward}")
    for name, value in verdict.counts:
        _line(out, f"{name}: {value:g}")


def _number(reward: float | None) -> str:
    return "none" if reward is None else str(reward)


def _line(out: Console, text: str) -> None:
    """One line, whatever text of a model it quotes: no markup, no wrapping, no control characters."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    out.print(shown, markup=False, highlight=False, emoji=False, soft_wrap=True)
