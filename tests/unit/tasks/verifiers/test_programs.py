"""Which text of a completion is its program, and how it is put together with the prompt's."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verifiers.programs import MAX_PROGRAM_CHARACTERS, NoProgram, indented_lines, last_fence, program_of
from tasks.verifiers.suites import Suite, UnreadableSuite, is_python, read_suite

PLAIN = Suite(tests=("assert f(1) == 2",))
HEAD = Suite(tests=("check(f)",), prefix='import math\n\n\ndef f(x):\n    """ Root. """\n', entry_points=("f",))


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("no fence", None),
        ("```python\na = 1\n```", "a = 1"),
        ("```py\na = 1\n```", "a = 1"),
        ("``` Python \na = 1\n```", "a = 1"),
        ("```python\na = 1\n```\n```python\nb = 2\n```", "b = 2"),
        ("```python\na = 1\n```\n```text\nout\n```", "a = 1"),
        ("```python\na = 1\n```\n```\nout\n```", "a = 1"),
        ("```\na = 1\n```", "a = 1"),
        ("```python\na = 1\nb = 2", "a = 1\nb = 2"),
        ("1. So:\n   ```python\n   a = 1\n   ```", "a = 1"),
        ("```json\n{}\n```", None),
        ("```python\n```", ""),
        ("```python\r\na = 1\r\n```\r\n", "a = 1\r"),
    ],
)
def test_the_program_is_the_last_fence_of_python_else_the_last_without_a_label(text, block):
    assert last_fence(text) == block


def test_a_fence_inside_the_reasoning_is_no_program():
    assert (
        program_of("<think>\n```python\na = 1\n```\n</think>\n```python\nb = 2\n```", "</think>", PLAIN).strip()
        == "b = 2"
    )
    with pytest.raises(NoProgram):
        program_of("<think>\n```python\na = 1\n```\n</think>", "</think>", PLAIN)
    assert program_of("<think>\n```python\na = 1\n```\n</think>", "", PLAIN).strip() == "a = 1"


def test_a_body_continues_the_prompt_and_what_follows_it_is_cut_only_where_it_is_no_python():
    body = "    return math.sqrt(x)\n"
    assert program_of(body, "", HEAD) == HEAD.prefix + body
    assert program_of(body + "\nThat is it.\n", "", HEAD).strip() == (HEAD.prefix + body).strip()
    assert program_of(body + "\n\ndef g():\n    return 1\n", "", HEAD).endswith("return 1\n")


def test_a_program_that_defines_the_entry_point_stands_after_the_prompts_imports():
    program = program_of("```python\ndef f(x):\n    return math.sqrt(x)\n```", "", HEAD)
    names = {}
    exec(program, names)
    assert names["f"](9) == 3


def test_a_program_past_the_limit_is_none():
    line = "a = 1\n"
    program_of(line * (MAX_PROGRAM_CHARACTERS // len(line)), "", PLAIN)
    with pytest.raises(NoProgram, match="characters"):
        program_of(line * (MAX_PROGRAM_CHARACTERS // len(line) + 1), "", PLAIN)


def test_five_million_characters_are_refused_within_seconds():
    started = time.process_time()
    for text in (
        "`" * 5_000_000,
        "```python\n" * 500_000,
        " " * 5_000_000,
        "```python\n" + " " * 5_000_000,
        "(" * 5_000_000,
    ):
        with pytest.raises(NoProgram):
            program_of(text, "</think>", PLAIN)
    assert time.process_time() - started < 10


NASTY = st.text() | st.lists(
    st.sampled_from(
        [
            "```python\n",
            "```\n",
            "\n```",
            "def f(x):\n",
            "    return 1\n",
            "</think>",
            "\x00",
            "\ud800",
            "é",
            "(" * 300,
            "\\d",
            "'",
        ]
    )
).map("".join)


@given(NASTY, st.sampled_from([PLAIN, HEAD]))
def test_any_text_is_a_program_that_parses_or_none(text, suite):
    try:
        program = program_of(text, "</think>", suite)
    except NoProgram:
        pass
    else:
        assert is_python(program)
        assert program.startswith(suite.prefix)


@given(NASTY)
def test_lines_are_kept_from_the_start_and_none_after_is_indented_first(text):
    kept = indented_lines(text)
    assert text.startswith(kept)
    assert all(not line.strip() or line[0].isspace() for line in kept.split("\n"))


@pytest.mark.parametrize(
    ("gold", "fault"),
    [
        ("", "no JSON"), ("[1]", "a list"), ("{}", "needs one of"), ('{"tests": []}', "at least one"),
        ('{"tests": [" "]}', "at least one"), ('{"tests": "assert 1"}', "at least one"), ('{"tests": [1]}', "at least one"),
        ('{"tests": ["assert f("]}', "no Python"), ('{"tests": ["f()"], "setup": "import ("}', "no Python"),
        ('{"tests": ["f()"], "setup": 1}', "not text"), ('{"tests": ["f()"], "cases": []}', "needs one of"),
        ('{"tests": ["f()"], "test_list": []}', "unknown keys"), ('{"check": "def check(c): pass"}', "one entry_point"),
        ('{"check": "x", "entry_point": ["f", "g"]}', "one entry_point"), ('{"tests": ["f()"], "entry_point": "f()"}', "no name"),
        ('{"tests": ["f()"], "entry_point": 3}', "no name"), ('{"cases": [{"stdin": "1"}]}', "no list of"),
        ('{"cases": [{"stdin": "1", "stdout": 2}]}', "no list of"), ('{"cases": []}', "any output"),
        ('{"cases": [{"stdin": "1", "stdout": " \\n"}]}', "any output"), ("[" * 100000, "no JSON"),
        ('{"tests": ["f()"], "prefix": "def f(:"}', "no Python"),
    ],
)  # fmt: skip
def test_a_gold_answer_that_decides_nothing_is_refused_with_the_fault(gold, fault):
    with pytest.raises(UnreadableSuite, match=fault):
        read_suite(gold)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["tests", "check", "cases", "setup", "prefix", "entry_point", "stdin", "stdout"]), inner), max_leaves=9)
    | st.text())  # fmt: skip
def test_any_gold_answer_is_read_or_refused(value):
    try:
        suite = read_suite(value if isinstance(value, str) else json.dumps(value))
    except UnreadableSuite:
        pass
    else:
        assert suite.num_tests >= 1


def test_a_head_without_a_body_gets_an_empty_one_where_it_runs_alone():
    assert Suite(prefix="def f(x):\n").prefix_code == "def f(x):\n\n    pass\n"
    assert HEAD.prefix_code == HEAD.prefix
