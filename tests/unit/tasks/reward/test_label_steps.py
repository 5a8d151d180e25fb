"""The stages of step labels on a store of their own."""

import json

import pytest

from storage import checkpoints, tables
from storage.errors import ProvenanceMismatch
from storage.manifest import Provenance
from storage.schemas import schema_of
from tasks.curriculum.config import PromptFormat
from tasks.curriculum.keys import prompt_key
from tasks.label_steps import Steps, continue_steps, label_steps, read_step_labels, score_continuations
from tasks.policy.characters import build_tokenizer
from tasks.reward.step_kinds import ProcessBenchFile, StepsConfig
from tasks.rollout.config import SamplingConfig, ScriptedEngineConfig
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.verifiers.config import ScoringConfig
from tests.conftest import make_llama

TOKENIZER = build_tokenizer()
CONFIG = StepsConfig.model_validate(
    {"kind": "steps", "split": {"kind": "separator", "separators": [","]}, "continuations": 4}
)
ENGINE = ScriptedEngineConfig(kind="scripted", script=("3,<answer>{answer}</answer>", "<answer>0</answer>"))
SCORING = ScoringConfig.model_validate(
    {
        "correctness": "exact",
        "process": "steps",
        "reward_model_weight": 0.5,
        "verifiers": [{"kind": "format"}, {"kind": "exact"}, {"kind": "arithmetic_steps"}],
    }
)
TEXT = "1,2,<answer>3</answer>"


@pytest.fixture
def steps(place):
    """One prompt and two completions of it that begin with the same step; the second one is wrong."""
    made = Provenance(stage="test", inputs={})

    def write(folder):
        make_llama().save_pretrained(folder)
        TOKENIZER.save_pretrained(folder)

    policy = checkpoints.publish(place, "policy", write, made)
    prompts = [
        {"prompt_id": name, "prompt_key": prompt_key(text), "split": split, "prompt": text, "is_chat": False}
        | {"prompt_token_ids": TOKENIZER(text)["input_ids"], "answer": "3", "metadata": "{}"}
        for name, text, split in (("p", "1+2=", "train"), ("q", "2+1=", "heldout"))
    ]
    completions, rewards = [], []
    for index, text in enumerate((TEXT, "1,<answer>4</answer>")):
        key = {"group_id": "g", "prompt_id": "p", "sample_index": index}
        ids = [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]
        known = {"prompt_token_ids": prompts[0]["prompt_token_ids"], "completion_token_ids": ids, "text": text}
        completions.append(dict.fromkeys(schema_of("completions").names) | key | known | {"finish_reason": "stop"})
        rewards.append(dict.fromkeys(schema_of("rewards", ("exact",)).names) | key | {"is_correct": index == 0})
    yield Steps(
        prompts=tables.publish(place, "prompts", prompts, made),
        completions=[tables.publish(place, "completions", completions, made)],
        rewards=[tables.publish(place, "rewards", rewards, made, sources=("exact",))],
        policy=policy,
    )
    residents.clear()


def continued(place, steps, seed=5, **changes):
    here = place.at(iteration=0, section="step-labels")
    config = CONFIG.model_copy(update=changes)
    continuations = continue_steps.fn(
        here, steps, config, ENGINE, SamplingConfig(max_new_tokens=30), MachineConfig(), seed
    )
    return continuations, score_continuations.fn(here, steps, continuations, config, SCORING, seed)


def test_prefixes_are_continued_verified_as_whole_completions_and_counted(place, steps):
    continuations, rewards = continued(place, steps)
    rows = tables.read(continuations)
    prompt = TOKENIZER("1+2=")["input_ids"]
    prefixes = {TOKENIZER.decode(row["prompt_token_ids"][len(prompt) :]) for row in rows}
    assert prefixes == {"1,", "1,2,"}  # the first step stands in both completions and is continued once
    assert len(rows) == 8
    assert len({row["seed"] for row in rows}) == 8
    verdicts = {(row["group_id"], row["sample_index"]): row for row in tables.read(rewards)}
    for row in rows:
        found = verdicts[row["group_id"], row["sample_index"]]
        assert found["is_correct"] == ("<answer>3</answer>" in row["text"])
        assert "format_reward" not in found  # only the verifier that decides is asked
    labels = tables.read(label_steps.fn(place, steps, continuations, rewards, None, CONFIG, 5))
    assert [row["step_labels"][-1] for row in labels] == [1.0, 0.0]
    share = {
        text: sum(
            verdicts[row["group_id"], row["sample_index"]]["is_correct"]
            for row in rows
            if TOKENIZER.decode(row["prompt_token_ids"][len(prompt) :]) == text
        )
        / 4
        for text in prefixes
    }
    assert [row["step_labels"][:-1] for row in labels] == [[share["1,"], share["1,2,"]], [share["1,"]]]
    assert {row["prompt_key"] for row in labels} == {prompt_key("1+2=")}


def test_a_second_call_finds_what_the_first_one_made_and_other_settings_are_named(place, steps):
    first = continued(place, steps)
    assert continued(place, steps) == first
    labels = label_steps.fn(place, steps, *first, None, CONFIG, 5)
    assert label_steps.fn(place, steps, *first, None, CONFIG, 5) == labels
    with pytest.raises(ProvenanceMismatch, match="continuations"):
        continued(place, steps, continuations=2)
    with pytest.raises(ProvenanceMismatch, match="seed"):
        continued(place, steps, seed=6)
    hard = CONFIG.model_copy(update={"labels": "hard"})
    with pytest.raises(ProvenanceMismatch, match="labels"):
        label_steps.fn(place, steps, *first, None, hard, 5)


def test_a_file_adds_its_labels_but_never_those_of_a_heldout_prompt(place, steps, tmp_path):
    path = tmp_path / "labels.jsonl"
    records = [{"problem": text, "steps": ["1", "2", "3"], "label": 1} for text in ("1+2=", "2+1=", "5+5=")]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    file = ProcessBenchFile(kind="process_bench", path=str(path), joined_by=",")
    there = place.at(iteration=0, section="file-labels")
    known = read_step_labels.fn(there, steps.prompts, steps.policy, file, PromptFormat())
    assert read_step_labels.fn(there, steps.prompts, steps.policy, file, PromptFormat()) == known
    assert [row["step_labels"] for row in tables.read(known)] == [[1.0, 0.0]] * 2
    made = continued(place, steps)
    ref = label_steps.fn(place, steps, *made, known, CONFIG, 5)
    rows = tables.read(ref)
    assert len(rows) == 4
    assert prompt_key("2+1=") not in {row["prompt_key"] for row in rows}
    assert [row["num_continuations"] for row in rows] == [8, 4, 0, 0]
    metrics = tables.metrics_of(ref)
    assert (metrics["num_file_rows"], metrics["num_file_heldout"], metrics["num_continuations"]) == (2, 1, 8)
    assert metrics["num_continuation_tokens"] == tables.metrics_of(made[0])["num_completion_tokens"]
