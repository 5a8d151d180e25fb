"""`igrpo verify`: what it prints and its exit status, run as a person runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def verify(*arguments, stdin=""):
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "verify", *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_an_accepted_answer():
    status, lines, _ = verify("math", "--answer", "1/2", "--completion", r"so \boxed{\frac{1}{2}}")
    assert (status, lines) == (0, ["reward: 1.0", "status: scored", "reason:"])


def test_a_refused_answer_is_a_verdict_too_and_what_it_quotes_is_shown_as_it_stands(tmp_path):
    (tmp_path / "text").write_text("<answer>[bold]6[/bold]\x1b[31m :smile:</answer>")
    status, lines, _ = verify("exact", "--answer", "5", "--completion", f"@{tmp_path}/text")
    assert (status, lines[:2]) == (0, ["reward: 0.0", "status: scored"])
    assert "[bold]6[/bold]\\x1b[31m :smile:" in lines[2]


def test_an_answer_that_can_not_be_read_has_no_reward():
    status, lines, _ = verify("math", "--answer", "A", stdin="\\boxed{A}")
    assert (status, lines[:2]) == (0, ["reward: none", "status: unscored"])


def test_settings_metadata_and_standard_input_reach_the_verifier(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def reward(prompts, completions, answer, level, **kwargs):\n"
        "    return [float((prompts, completions, answer, level) == (['p'], ['c'], ['a'], [[1]]))]\n"
    )
    function = ("function", "--set", f"function={tmp_path}/mine.py:reward")
    status, lines, _ = verify(
        *function, "--prompt", "p", "--answer", "a", "--metadata", json.dumps({"level": [1]}), stdin="c"
    )
    assert (status, lines[0]) == (0, "reward: 1.0")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import time; time.sleep(60)", "timeout"),
        ("raise KeyError('odd')", "error"),
        ("import os; os._exit(3)", "error"),
    ],
)
def test_a_verifier_that_fails_on_the_completion_has_exit_status_1(tmp_path, body, expected):
    (tmp_path / "mine.py").write_text(f"def reward(**kwargs):\n    {body}\n")
    function = ("function", "--set", f"function={tmp_path}/mine.py:reward")
    status, lines, _ = verify(*function, "--completion", "x", "--deadline", "0.5")
    assert (status, lines[:2]) == (1, ["reward: none", f"status: {expected}"])


def test_a_recipe_has_a_block_for_each_verifier_and_the_total():
    completion = "<think>5+8=14</think><answer>13</answer>"
    changed = ("--set", "scoring.verifiers.1.weight=0.25")
    status, lines, _ = verify("--recipe", "process", "--answer", "13", "--prompt", "5+8=", *changed, stdin=completion)
    assert status == 0
    assert [line for line in lines if line.startswith("verifier")] == [
        "verifier: exact (weight 1)",
        "verifier: format (weight 0.25)",
        "verifier: steps (weight 0)",
    ]
    assert [line for line in lines if line.startswith("step up")] == [
        "step up to character 21: 0.0",
        "step up to character 40: 1.0",
    ]
    assert lines[-1] == "total (without the reward model): 1.25"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "'exact'"),
        (["exact", "--set", "foo=1"], "exact.foo: is not a setting"),
        (["exact", "--set", "foo"], "KEY=VALUE"),
        (["exact", "--metadata", "["], "--metadata is not JSON"),
        (["exact", "--metadata", "[]"], "--metadata is a list"),
        (["exact", "--completion", "@no/such/file"], "No such file"),
        (["--recipe", "nowhere"], "no recipe is called"),
        (["exact", "--recipe", "quickstart"], "one of the two"),
        ([], "one of the two"),
    ],
)
def test_wrong_input_has_exit_status_2_and_says_what_is_wrong(arguments, said):
    status, lines, err = verify(*arguments)
    assert (status, lines) == (2, [])
    assert said in " ".join(err.split())


def test_a_verifier_that_can_not_start_has_exit_status_1_and_no_verdict():
    status, lines, err = verify("function", "--set", "function=no_such:reward", "--completion", "x")
    assert (status, lines) == (1, [])
    assert "No module named 'no_such'" in err


def test_nothing_that_scores_by_hand_loads_torch():
    script = "import sys, flows.verify_view, flows.cli; print('torch' in sys.modules, 'prefect' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
