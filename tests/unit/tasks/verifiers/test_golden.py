"""Every verifier against its file of accepted and refused answers, worked by hand."""

import json
from pathlib import Path

import pytest

from tasks.verifiers.config import ExactVerifier, FormatVerifier, MathVerifier
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.verdict import ScoreItem

FOLDER = Path(__file__).parents[3] / "golden" / "verifiers"
CONFIGS = {
    "math": MathVerifier(kind="math"),
    "exact": ExactVerifier(kind="exact"),
    "format": FormatVerifier(kind="format"),
}
CASES = [
    pytest.param(kind, case, id=f"{kind}:{case['gold']}:{case['completion'][:40]}")
    for kind in CONFIGS
    for case in map(json.loads, (FOLDER / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines())
]


def verdict(config, gold, completion):
    return VERIFIERS[type(config)](config, ScoreItem(prompt="", answer=gold, completion=completion, metadata={}))


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_golden(kind, case):
    found = verdict(CONFIGS[kind], case["gold"], case["completion"])
    assert (found.status, found.reward) == ("scored", case["reward"]), found.reason


@pytest.mark.parametrize("gold", ["A", "(C)", "", "(10!)!", "10^{10^{10}}"])
@pytest.mark.parametrize("completion", ["\\boxed{A}", "\\boxed{5}", "anything"])
def test_a_gold_answer_that_can_not_be_read_never_pays(gold, completion):
    found = verdict(CONFIGS["math"], gold, completion)
    assert (found.status, found.reward) == ("unscored", None)


@pytest.mark.parametrize(
    "gold",
    ["\\left( 3, \\frac{\\pi}{2} \\right)", "p - q", "\\frac{14}{3}", "6 - 5i", "x^3+3x-6", "4210_{5}", "\\text{(B)}",
     "\\begin{pmatrix} -2 \\\\ -14 \\\\ -7 \\end{pmatrix}", "10,\\!080", "-\\sqrt{3}", "\\{-1, 0, 1\\}", "2k+2", "18.90",
     "[2,5)", "1 \\pm \\sqrt{19}", "\\tan x", "137 \\frac{1}{2}", "y = 2x + 3", "3,5,7"],
)  # fmt: skip
def test_a_gold_answer_is_accepted_as_its_own_answer(gold):
    assert verdict(CONFIGS["math"], gold, f"so \\boxed{{{gold}}}").reward == 1.0


def test_a_box_of_any_text_is_scored_without_raising():
    for text in ("\\frac{", "{{{{", "\\sqrt", "^^", "1/0", "\\text{", "\x00", "\ud800", "∞-∞", "a" * 5000, "(" * 500):
        found = verdict(CONFIGS["math"], "5", f"\\boxed{{{text}}}")
        assert found.reward == 0.0, text
