"""Every verifier against its file of accepted and refused answers, worked by hand.

A line: gold, completion, reward (null: not scored); where needed also prompt, metadata, settings (of the verifier), steps
(their rewards), reply (of the judge that is asked) and status.
"""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tasks.verifiers.answer_kinds import MathVerifier
from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.verdict import ScoreItem

FOLDER = Path(__file__).parents[3] / "golden" / "verifiers"
GOLDEN = {
    path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for path in sorted(FOLDER.glob("*.jsonl"))
}
ASKED = {"judge"}
"""Kinds that ask a server; their file is read where the server is, in test_judge.py."""


def settings_of(kind, case):
    return TypeAdapter(VerifierConfig).validate_python({"kind": kind, **case.get("settings", {})})


def kind_of(settings):
    return settings.model_fields["kind"].annotation.__args__[0]


SANDBOXED = {"code"}

CASES = [
    pytest.param(
        kind,
        case,
        id=f"{kind}:{number}:{case['completion'][:40]}",
        marks=[pytest.mark.sandbox] if kind in SANDBOXED else [],
    )
    for kind, cases in GOLDEN.items()
    if kind not in ASKED
    for number, case in enumerate(cases, 1)
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_golden(kind, case):
    config = settings_of(kind, case)
    item = ScoreItem(
        prompt=case.get("prompt", ""),
        answer=case["gold"],
        completion=case["completion"],
        metadata=case.get("metadata", {}),
    )
    found = VERIFIERS[type(config)](config, item)
    expected = case.get("status", "scored")
    assert found.status == expected, found.reason
    assert found.reward == (None if case["reward"] is None else pytest.approx(case["reward"], abs=1e-9)), found.reason
    if "steps" in case:
        assert [reward for _, reward in found.steps] == case["steps"]
        assert found.steps[-1][0] == len(case["completion"])


@pytest.mark.parametrize("kind", [kind_of(each) for each in VERIFIERS])
def test_every_verifier_has_thirty_answers_some_accepted_and_some_refused(kind):
    rewards = [case["reward"] for case in GOLDEN[kind]]
    assert len(rewards) >= 30
    assert sum(reward == 1 for reward in rewards) >= 8
    assert sum(reward == 0 for reward in rewards) >= 8


def verdict(config, gold, completion):
    return VERIFIERS[type(config)](config, ScoreItem(prompt="", answer=gold, completion=completion, metadata={}))


@pytest.mark.parametrize("gold", ["A", "(C)", "", "(10!)!", "10^{10^{10}}"])
@pytest.mark.parametrize("completion", ["\\boxed{A}", "\\boxed{5}", "anything"])
def test_a_gold_answer_that_can_not_be_read_never_pays(gold, completion):
    found = verdict(MathVerifier(kind="math"), gold, completion)
    assert (found.status, found.reward) == ("unscored", None)


@pytest.mark.parametrize(
    "gold",
    ["\\left( 3, \\frac{\\pi}{2} \\right)", "p - q", "\\frac{14}{3}", "6 - 5i", "x^3+3x-6", "4210_{5}", "\\text{(B)}",
     "\\begin{pmatrix} -2 \\\\ -14 \\\\ -7 \\end{pmatrix}", "10,\\!080", "-\\sqrt{3}", "\\{-1, 0, 1\\}", "2k+2", "18.90",
     "[2,5)", "1 \\pm \\sqrt{19}", "\\tan x", "137 \\frac{1}{2}", "y = 2x + 3", "3,5,7"],
)  # fmt: skip
def test_a_gold_answer_is_accepted_as_its_own_answer(gold):
    assert verdict(MathVerifier(kind="math"), gold, f"so \\boxed{{{gold}}}").reward == 1.0


def test_a_box_of_any_text_is_scored_without_raising():
    for text in ("\\frac{", "{{{{", "\\sqrt", "^^", "1/0", "\\text{", "\x00", "\ud800", "∞-∞", "a" * 5000, "(" * 500):
        found = verdict(MathVerifier(kind="math"), "5", f"\\boxed{{{text}}}")
        assert found.reward == 0.0, text
