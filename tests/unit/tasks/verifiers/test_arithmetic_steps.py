"""The steps of chain arithmetic, judged by hand."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.policy.arithmetic import worked
from tasks.values.arithmetic import make_problem
from tasks.verifiers.arithmetic_steps import read_equation, verify
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, NewlineSplit, SeparatorSplit, TagSplit
from tasks.verifiers.verdict import ScoreItem

CONFIG = ArithmeticStepsVerifier(kind="arithmetic_steps")


def verdict(completion, *, prompt="5+8-1-5=", answer="7", config=CONFIG):
    return verify(config, ScoreItem(prompt=prompt, answer=answer, completion=completion, metadata={}))


def rewards(completion, **settings):
    return [reward for _, reward in verdict(completion, **settings).steps]


def test_the_steps_end_where_the_text_is_cut_and_the_first_wrong_one_is_named():
    found = verdict("<think>5+8=13,13-1=11,11-5=6</think><answer>7</answer>")
    assert found.steps == ((14, 1.0), (22, 0.0), (36, 1.0), (54, 1.0))
    assert found.reason == "step 2 of 4 is wrong: '13-1=11,'"
    assert verdict("<think>6+8=14,").reason == "step 1 of 1 is wrong: '<think>6+8=14,'"


def test_an_empty_completion_is_one_wrong_step():
    found = verdict("")
    assert (found.status, found.reward, found.steps) == ("scored", 0.0, ((0, 0.0),))


@pytest.mark.parametrize("prompt", ["", "What is 5+8?", "5+8", "15+8=", '[{"role": "user", "content": "5+8="}]'])
def test_another_prompt_than_a_chain_is_unscored(prompt):
    found = verdict("<answer>7</answer>", prompt=prompt)
    assert (found.status, found.reward, found.steps) == ("unscored", None, ())


def test_without_a_gold_answer_the_row_is_unscored():
    assert verdict("<answer></answer>", answer=" ").status == "unscored"


def test_the_other_ways_to_cut_judge_the_same_working():
    lines = ArithmeticStepsVerifier(kind="arithmetic_steps", split=NewlineSplit(kind="newline"))
    assert rewards("5+8=13\r\n13-1=12\n\n12-5=8\n<answer>\n7\n</answer>\nbye", config=lines) == [1, 1, 0, 1, 1, 1, 0]
    blocks = ArithmeticStepsVerifier(kind="arithmetic_steps", split=TagSplit(kind="tag", tag="step"))
    working = "<step>5+8=13</step><step>13-1=12</step><step>12-5=7</step><answer>7</answer>"
    assert rewards(working, config=blocks) == [1, 1, 1, 1]
    arrows = ArithmeticStepsVerifier(
        kind="arithmetic_steps",
        answer_tag="a",
        split=SeparatorSplit(kind="separator", separators=("->", "=>", "그리고")),
    )
    assert rewards("5+8=13->13-1=12그리고12-5=7=><a>7</a>", config=arrows) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13-1=12", (13, -1, 12)),
        ("-3+5=2", (-3, 5, 2)),
        ("- 5+8=13", (5, 8, 13)),
        ("1+5+8=13", None),
        ("5+8=13=13", None),
        ("5+8=13.5", None),
        ("1.5+8=13", None),
        ("--5+8=3", None),
        ("2*5+8=13", None),
        ("x5+8=13", None),
        ("5+8=13x", None),
        ("5+8=13-", (5, 8, 13)),
        ("5+8==13", None),
        ("5*8=40", None),
        ("5+8=13 13-1=12", None),
        ("1" * 5000 + "+8=13", None),
        ("5+8=" + "1" * 5000, None),
    ],
)
def test_an_equation_is_read_only_where_exactly_one_stands(text, expected):
    assert read_equation(text) == expected


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]))
def test_of_a_demonstration_as_many_steps_are_wrong_as_slipped(seed, slip_share):
    rng = random.Random(seed)
    prompt, answer = make_problem(rng, 2, 6)
    completion, num_slips = worked(prompt, rng, slip_share)
    found = rewards(completion, prompt=prompt, answer=answer)
    assert len(found) == prompt.count("+") + prompt.count("-") + 1
    assert found[:-1].count(0.0) == num_slips
    assert found[-1] == float(f"<answer>{answer}</answer>" in completion)


@given(st.lists(st.sampled_from(["5+8=13", ",", "<think>", "</think>", "<answer>", "</answer>", "7", "-", "=", "\n", "다", "９", "\ud800"]), max_size=14))  # fmt: skip
def test_any_text_is_judged_step_by_step_without_raising(parts):
    text = "".join(parts)
    found = verdict(text)
    assert found.status == "scored"
    assert found.steps[-1][0] == len(text)
    assert found.reward == pytest.approx(sum(reward for _, reward in found.steps) / len(found.steps))
