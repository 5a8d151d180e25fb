"""A process reward model in the whole loop: labelled by continuations, retrained, and supervising the process."""

import json
import signal

import pytest

from storage import iterations, tables
from tests.integration.conftest import Cli
from tests.integration.test_resume import KILLER, digests

pytestmark = pytest.mark.orchestration

SETTINGS = [
    'reward_model.labels={kind="steps",split={kind="separator",separators=[",","</think>"]},continuations=3,max_groups=6}',
    'rollout.engine.script=["<think>1,2</think><answer>{answer}</answer>","<think>1</think><answer>1</answer>",'
    '"<answer>{answer}</answer>","2"]',
    "rollout.sampling.max_new_tokens=24",
    'scoring={correctness="exact",process="reward_model",verifiers=[{kind="exact"},{kind="format",weight=0.0}]}',
    "update.algorithm=grpo_process",
]
ARGUMENTS = ["--iterations", "1", *(part for setting in SETTINGS for part in ("--set", setting))]

# Stages 6, 7 and 8 of iteration 0 are the continuations, their rewards and the labels.
POINTS = ["before a stage commits:6", "after the rename:1", "with a part written:1", "before the rename:1"]


@pytest.fixture(scope="module")
def straight(prefect_url, recipe, tmp_path_factory):
    cli = Cli(tmp_path_factory.mktemp("process-reward"), prefect_url)
    done = cli("run", str(recipe), *ARGUMENTS)
    assert done.returncode == 0, done.stderr + done.stdout
    return cli


def read(cli, *parts):
    return tables.read(tables.ref_at(cli.store.joinpath("small", *parts)))


@pytest.mark.parametrize("folder", [("iteration-0000",), ("iteration-0001",), ("iteration-0001", "evaluation")])
def test_every_label_is_the_share_of_the_continuations_from_there_that_are_correct(straight, folder):
    section = "evaluation-step-labels" if folder[-1] == "evaluation" else "step-labels"
    continued = {}
    verdicts = {
        (row["group_id"], row["sample_index"]): row["is_correct"]
        for row in read(straight, folder[0], section, "rewards")
    }
    for row in read(straight, folder[0], section, "completions"):
        ids = tuple(row["prompt_token_ids"])
        continued.setdefault(ids, []).append(verdicts[row["group_id"], row["sample_index"]])
    assert continued
    assert {len(found) for found in continued.values()} == {3}
    labels = read(straight, *folder, "step_labels")
    asked = set()
    for row in labels:
        num_continuations = 0
        for end, label in zip(row["step_ends"][:-1], row["step_labels"][:-1], strict=True):
            ids = (*row["prompt_token_ids"], *row["completion_token_ids"][: end + 1])
            assert label == pytest.approx(sum(continued[ids]) / 3)
            asked.add(ids)
            num_continuations += 3
        assert row["step_ends"][-1] == len(row["completion_token_ids"]) - 1
        assert row["step_labels"][-1] in (0.0, 1.0)
        assert row["num_continuations"] == num_continuations
    assert asked == set(continued)
    assert len({row["group_id"] for row in labels}) <= 6


def test_a_continuation_has_what_the_prefix_leaves_of_the_token_budget(straight):
    prompts = {row["prompt_id"]: row["prompt_token_ids"] for row in read(straight, "iteration-0000", "prompts")}
    for row in read(straight, "iteration-0001", "step-labels", "completions"):
        prompt = prompts[row["prompt_id"]]
        assert row["prompt_token_ids"][: len(prompt)] == prompt
        prefix = len(row["prompt_token_ids"]) - len(prompt)
        assert prefix > 0
        assert prefix + len(row["completion_token_ids"]) <= 24


def test_before_the_first_model_no_row_has_steps_and_then_every_row_has_the_models(straight):
    for row in read(straight, "iteration-0000", "initial", "rewards"):
        assert (row["step_rewards"], row["reward_model_status"]) == (None, "unscored")
    lengths = {
        (row["group_id"], row["sample_index"]): len(row["completion_token_ids"])
        for row in read(straight, "iteration-0001", "step-001", "completions")
    }
    for row in read(straight, "iteration-0001", "step-001", "rewards"):
        assert row["step_ends"][-1] == lengths[row["group_id"], row["sample_index"]] - 1
        assert row["reward_model_reward"] == min(row["step_rewards"])
        assert all(0 < reward < 1 for reward in row["step_rewards"])
    samples = read(straight, "iteration-0001", "step-001", "samples")
    assert any(value for row in samples for value in row["token_advantages"])


def test_the_record_says_what_the_labels_cost_and_what_the_model_knows(straight):
    metrics = iterations.records(straight.store, "small")[1].metrics
    continuations = read(straight, "iteration-0001", "step-labels", "completions")
    assert metrics["labels/num_continuations"] == len(continuations)
    tokens = sum(len(row["completion_token_ids"]) for row in continuations)
    assert metrics["labels/num_continuation_tokens"] == tokens
    labels = read(straight, "iteration-0001", "step_labels")
    assert metrics["labels/num_steps_labelled"] == sum(len(row["step_ends"]) for row in labels)
    assert {"reward_model/heldout_auc_before", "reward_model/heldout_first_wrong_f1_after"} <= metrics.keys()
    training = read(straight, "iteration-0001", "reward_training")
    assert sum(not row["is_replayed"] for row in training) == len(labels)
    heldout = {row["prompt_key"] for row in read(straight, "iteration-0000", "prompts") if row["split"] == "heldout"}
    assert not heldout & {row["prompt_key"] for row in training}
    assert {row["prompt_key"] for row in read(straight, "iteration-0001", "evaluation", "step_labels")} <= heldout


def test_a_run_that_is_killed_in_every_stage_of_the_labels_ends_like_one_that_was_not(
    straight, prefect_url, recipe, tmp_path_factory, tmp_path
):
    (tmp_path / "sitecustomize.py").write_text(KILLER)
    killed = Cli(tmp_path_factory.mktemp("killed-labels"), prefect_url)
    for point in POINTS:
        done = killed("run", str(recipe), *ARGUMENTS, KILL_AT=point, PYTHONPATH=str(tmp_path))
        assert done.returncode == -signal.SIGKILL, f"{point}: {done.returncode} {done.stderr}"
    folder = killed.store / "small" / "iteration-0000"
    assert (folder / "step-labels" / "completions" / "manifest.json").is_file()
    assert json.loads((folder / "step-labels" / "completions" / "manifest.json").read_text())["num_rows"] > 0
    done = killed("run", str(recipe), *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert digests(killed.store) == digests(straight.store)
