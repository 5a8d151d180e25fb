"""Numbers, letters and patterns found in any text: nothing is raised, and what was put in is found."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.verifiers.answer_kinds import ChoiceVerifier, NumericVerifier, RegexVerifier
from tasks.verifiers.choice import LETTERS, read_letter
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.verdict import ScoreItem

SETTINGS = [
    *(NumericVerifier(kind="numeric", where=where) for where in ("tag", "box", "last_number")),
    *(ChoiceVerifier(kind="choice", where=where) for where in ("tag", "box", "stated")),
    *(RegexVerifier(kind="regex", match=match) for match in ("full", "search")),
]
ANY_TEXT = st.text() | st.text(alphabet="<>/answer\\boxed{}0123456789.,%()ABC 정답은: \ud800\x00", max_size=200)


def verdict(config, gold, completion, **changes):
    item = ScoreItem(prompt="", answer=gold, completion=completion, metadata={}, **changes)
    return VERIFIERS[type(config)](config, item)


@pytest.mark.parametrize("config", SETTINGS, ids=str)
@given(gold=ANY_TEXT, completion=ANY_TEXT)
def test_any_text_gets_a_verdict_and_only_a_readable_gold_answer_pays(config, gold, completion):
    found = verdict(config, gold, completion)
    assert found.status in ("scored", "unscored")
    assert (found.reward in (0.0, 1.0)) == (found.status == "scored")


@given(st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**4))
def test_a_number_is_within_every_tolerance_of_itself(value):
    exact = NumericVerifier(kind="numeric", relative_tolerance=0.0)
    assert verdict(exact, str(value), f"<answer>{value}</answer>").reward == 1.0
    assert verdict(exact, str(value), f"<answer>{value + Fraction(1, 10**5)}</answer>").reward == 0.0


@pytest.mark.parametrize(
    ("answer", "reward"), [("100.0001", 1.0), ("100.00011", 0.0), ("99.9999", 1.0), ("99.99989", 0.0)]
)
def test_the_tolerance_belongs_to_the_gold_answer_and_its_bounds_to_the_tolerance(answer, reward):
    config = NumericVerifier(kind="numeric", relative_tolerance=0.000001)
    # 1e-6 as a float is a little less than a millionth: the bound is the float's own value.
    bound = Fraction(0.000001) * 100
    expected = float(abs(Fraction(answer) - 100) <= bound)
    assert verdict(config, "100", f"<answer>{answer}</answer>").reward == expected
    assert reward == expected or abs(abs(Fraction(answer) - 100) - bound) < Fraction(1, 10**12)


def test_the_last_number_of_a_completion_that_was_cut_is_no_answer():
    config = NumericVerifier(kind="numeric", where="last_number")
    assert verdict(config, "4", "so 4", is_truncated=True).reward == 0.0
    assert verdict(config, "4", "so 4").reward == 1.0


@given(
    st.sampled_from(LETTERS), st.sampled_from(["{}", "({})", "[{}]", "{}.", " {} ", "\\text{{{}}}", "**{}**", "({})."])
)
def test_a_letter_is_read_however_it_is_dressed(letter, form):
    assert read_letter(form.format(letter), []) == letter


def test_two_options_of_one_text_are_told_apart_by_letter_only():
    assert read_letter("same", ["same", "same"]) is None
    assert read_letter("B. same", ["same", "same"]) == "B"
    assert read_letter("C. same", ["same", "same"]) is None


def test_a_pattern_that_is_none_is_refused_with_the_recipe():
    with pytest.raises(ValidationError, match="is not a regular expression"):
        RegexVerifier(kind="regex", pattern="(")


def test_a_pattern_that_backtracks_for_ever_times_out_and_the_next_row_is_scored():
    slow = ScoreItem(prompt="", answer="(a+)+b", completion="a" * 40, metadata={})
    quick = ScoreItem(prompt="", answer="a+", completion="aaa", metadata={})
    with VerifierPool([RegexVerifier(kind="regex")], 1, 1.0) as pool:
        verdicts = pool.score([slow, quick], lambda done, total: None)
    assert [row[0].status for row in verdicts] == ["timeout", "scored"]
    assert verdicts[1][0].reward == 1.0
