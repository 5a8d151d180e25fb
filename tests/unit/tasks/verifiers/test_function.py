"""Reward functions of other people: what they are given, what may come back, and what can not start."""

import json

import pytest
from pydantic import ValidationError

from tasks.verifiers.call_kinds import FunctionVerifier
from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.function import load, prepare, verify, verify_group
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.totals import items_of, reward_rows
from tasks.verifiers.verdict import CannotStart, ScoreItem, scored
from tasks.verifiers.worker import verdicts_of

REWARDS = """
import asyncio, sys
import numpy as np

def as_in_trl(prompts, completions, answer, completion_ids, level, **kwargs):
    assert kwargs["trainer_state"] is None
    return [float(each == gold) for each, gold in zip(completions, answer, strict=True)]

def keep(**kwargs):
    keep.seen = kwargs
    return [0.5] * len(kwargs["prompts"])

def named(completions, solution):
    return [len(solution[0])]

def compares(completions, **kwargs):
    longest = max(map(len, completions))
    return [float(len(each) == longest) for each in completions]

def odd(completions, **kwargs):
    values = {"raise": None, "nan": float("nan"), "inf": float("inf"), "none": None, "true": True, "false": np.bool_(False),
              "f32": np.float32(0.25), "f64": np.float64(0.75), "int": 2, "text": "1.0", "list": [1.0]}
    for each in completions:
        if each == "raise":
            raise KeyError("odd one")
        if each == "exit":
            sys.exit(0)
        print('[[1.0, "scored", "", [], []]]', flush=True)
    return [values[each] for each in completions]

def short(completions, **kwargs):
    return [1.0] * 3

def one_number(completions, **kwargs):
    return 1.0

def one_text(completions, **kwargs):
    return "1" * len(completions)

def by_name(completions, **kwargs):
    return {each: 1.0 for each in completions}

def array(completions, **kwargs):
    return np.ones(len(completions), dtype=np.float32)

def lazily(completions, **kwargs):
    return (1.0 for _ in completions)

LOCK = []

async def later(completions, **kwargs):
    if not LOCK:
        LOCK.append(asyncio.Lock())
        await LOCK[0].acquire()
        asyncio.get_running_loop().call_later(0.01, LOCK[0].release)
    async with LOCK[0]:
        return [1.0] * len(completions)

def logs(completions, log_extra, log_metric, **kwargs):
    log_extra("read", [str(each).upper() for each in completions])
    log_metric("is right!", 1)
    log_metric("is right!", 0.5)
    return [None if each == "none" else 1.0 for each in completions]

class Holder:
    @staticmethod
    def inside(completions, **kwargs):
        return [1.0] * len(completions)

constant = 3
"""


@pytest.fixture
def rewards(tmp_path):
    """Settings of a function in a file of its own."""
    path = tmp_path / "rewards.py"
    path.write_text(REWARDS)
    load.cache_clear()

    def settings(function, **others):
        return FunctionVerifier(kind="function", function=f"{path}:{function}", **others)

    return settings


def item(completion="x", **others):
    return ScoreItem(**{"prompt": "p", "answer": "a", "completion": completion, "metadata": {}, **others})


def silent(done, total):
    return None


def test_a_function_of_trl_runs_unchanged_on_plain_prompts(rewards):
    given = [item(each, metadata={"level": 3}) for each in ("a", "b")]
    assert [verify(rewards("as_in_trl"), each).reward for each in given] == [1.0, 0.0]
    assert [each.reward for each in verify_group(rewards("as_in_trl", per="group"), given)] == [1.0, 0.0]


def test_the_arguments_are_those_of_trl(rewards):
    config = rewards("keep", answer_column="solution", per="group")
    chat = json.dumps([{"role": "user", "content": "2+2?"}])
    asked = {"is_chat": True, "prompt": chat, "metadata": {"level": [1], "prompt": "not this", "completion_ids": 0}}
    assert verify_group(config, [item("4", completion_token_ids=(5, 6), **asked), item("5", **asked)])[1].reward == 0.5
    seen = load(config.function).seen
    assert seen.pop("log_extra")
    assert seen.pop("log_metric")
    assert seen == {
        "prompts": [[{"role": "user", "content": "2+2?"}]] * 2,
        "completions": [[{"role": "assistant", "content": "4"}], [{"role": "assistant", "content": "5"}]],
        "completion_ids": [[5, 6], []],
        "solution": ["a", "a"],
        "level": [[1], [1]],
        "trainer_state": None,
    }


def test_a_function_without_kwargs_is_given_what_it_names(rewards):
    assert verify(rewards("named", answer_column="solution"), item(answer="four")).reward == 4.0


@pytest.mark.parametrize(
    ("completion", "status", "reward", "said"),
    [
        ("none", "unscored", None, "gave None"),
        ("true", "scored", 1.0, ""),
        ("false", "scored", 0.0, ""),
        ("f32", "scored", 0.25, ""),
        ("f64", "scored", 0.75, ""),
        ("int", "scored", 2.0, ""),
        ("nan", "error", None, "rewards.py:odd gave nan"),
        ("inf", "error", None, "rewards.py:odd gave inf"),
        ("text", "error", None, "rewards.py:odd gave '1.0', a str"),
        ("list", "error", None, "a list, not a number"),
        ("raise", "error", None, "KeyError: 'odd one'"),
        ("exit", "error", None, "SystemExit"),
        ("unknown", "error", None, "KeyError: 'unknown'"),
    ],
)
def test_what_comes_back_for_a_row(rewards, completion, status, reward, said):
    (found,) = verdicts_of(rewards("odd"), [item(completion)])
    assert (found.status, found.reward) == (status, reward)
    assert said in found.reason


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("short", "rewards.py:short returned 3 rewards for 2 completions"),
        ("one_number", "rewards.py:one_number returned a float, not a list"),
        ("one_text", "rewards.py:one_text returned a str"),
        ("by_name", "rewards.py:by_name returned a dict"),
    ],
)
def test_anything_but_one_value_per_completion_is_every_rows_error(rewards, function, said):
    found = verify_group(rewards(function, per="group"), [item(), item()])
    assert [each.status for each in found] == ["error", "error"]
    assert said in found[0].reason


def test_one_bad_value_is_the_error_of_its_row_only(rewards):
    found = verify_group(rewards("odd", per="group"), [item("true"), item("nan"), item("none"), item("false")])
    assert [each.status for each in found] == ["scored", "error", "unscored", "scored"]


@pytest.mark.parametrize("function", ["array", "lazily", "later", "Holder.inside"])
def test_arrays_generators_async_functions_and_methods_are_as_good_as_lists(rewards, function):
    config = rewards(function)
    assert [verify(config, item()).reward for _ in range(2)] == [1.0, 1.0]


def test_a_function_sees_a_group_together_only_where_the_settings_say_so(rewards):
    given = [item(each, group_id=group) for group, each in (("1", "ab"), ("2", "abc"), ("1", "a"), ("2", "abcd"))]
    with VerifierPool([rewards("compares"), rewards("compares", name="both", per="group")], 2, 5.0) as pool:
        found = pool.score(given, silent)
    assert [row[0].reward for row in found] == [1.0] * 4
    assert [row[1].reward for row in found] == [1.0, 0.0, 0.0, 1.0]


def test_what_a_function_prints_is_no_answer(rewards):
    with VerifierPool([rewards("odd")], 1, 5.0) as pool:
        found = pool.score([item("false"), item("exit"), item("false")], silent)
    assert [row[0].reward for row in found] == [0.0, None, 0.0]
    assert found[1][0].status == "error"


def test_what_a_function_logs_is_kept(rewards):
    found = verify_group(rewards("logs", per="group"), [item("none"), item("b")])
    assert [each.reason for each in found] == ["read=NONE", "read=B"]
    assert dict(found[0].counts) == {"is_right__sum": 1.5, "num_is_right_": 2.0}
    assert found[1].counts == ()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("no_such_package.of_mine:reward", "No module named 'no_such_package'.*path of the file"),
        ("json:no_such", "json has no 'no_such'; correct the name"),
        ("nowhere/rewards.py:reward", "there is no file .*nowhere/rewards.py; relative paths begin at"),
    ],
)
def test_a_function_that_is_not_there_is_named_with_the_cure_when_scoring_starts(function, said):
    config = FunctionVerifier(kind="function", function=function)
    with pytest.raises(CannotStart, match=said):
        prepare(config)
    with pytest.raises(CannotStart, match=f"verifier 'function': .*{said}"):
        VerifierPool([config], 1, 5.0)


def test_a_module_that_does_not_import_and_a_name_that_is_no_function_can_not_start(rewards, tmp_path):
    with pytest.raises(CannotStart, match="is a int, not a function"):
        prepare(rewards("constant"))
    (tmp_path / "broken.py").write_text("def reward(:\n")
    with pytest.raises(CannotStart, match="SyntaxError"):
        prepare(FunctionVerifier(kind="function", function=f"{tmp_path}/broken.py:reward"))
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(CannotStart, match="SystemExit"):
        prepare(FunctionVerifier(kind="function", function=f"{tmp_path}/leaves.py:reward"))


def test_modules_and_relative_files_are_found_from_the_folder_that_scoring_was_started_in(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rewards.py").write_text("from beside import VALUE\n\ndef reward(**_):\n    return [VALUE]\n")
    (tmp_path / "mine" / "beside.py").write_text("VALUE = 0.5\n")
    (tmp_path / "of_mine.py").write_text("def reward(**_):\n    return [0.25]\n")
    (tmp_path / "json.py").write_text("raise ImportError('hides a module')\n")
    monkeypatch.chdir(tmp_path)
    names = {"a": "mine/rewards.py:reward", "b": "of_mine:reward"}
    configs = [FunctionVerifier(kind="function", name=name, function=each) for name, each in names.items()]
    with VerifierPool(configs, 1, 5.0) as pool:
        assert [each.reward for each in pool.score([item()], silent)[0]] == [0.5, 0.25]


@pytest.mark.parametrize("function", ["rewards", "rewards:", ":f", "a b:f g", "rewards:1x"])
def test_a_name_that_can_be_no_function_is_refused_with_the_recipe(function):
    with pytest.raises(ValidationError):
        FunctionVerifier(kind="function", function=function)


def test_the_table_has_the_columns_that_a_function_asks_for_and_its_metrics(rewards):
    config = ScoringConfig.model_validate(
        {"correctness": "function", "verifiers": [rewards("logs").model_dump(), {"kind": "exact"}]}
    )
    selection = [{"group_id": "g", "prompt": "[]", "is_chat": True, "answer": "a", "metadata": '{"level": 1}'}]
    keys = {"group_id": "g", "prompt_id": "p", "is_truncated": False}
    completions = [{**keys, "sample_index": row, "text": "t", "completion_token_ids": [row, 7]} for row in range(2)]
    items = items_of(completions, selection)
    assert items[1] == ScoreItem("[]", "a", "t", {"level": 1}, False, True, "g", (1, 7))
    verdicts = [[verify(config.verifiers[0], each), scored(1.0)] for each in items]
    _, metrics = reward_rows(completions, verdicts, None, config)
    assert (metrics["function_is_right__sum"], metrics["function_num_is_right_"]) == (3.0, 4.0)
