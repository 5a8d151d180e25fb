"""From a completion's text to the probabilities of its steps and its one outcome."""

import math

import pytest
import torch

from tasks.policy.characters import build_tokenizer
from tasks.reward.head import RewardModel
from tasks.reward.scorer import score_sequences
from tasks.reward.step_examples import step_sequence
from tasks.reward.step_kinds import StepsConfig
from tasks.reward.step_scorer import REDUCTIONS, score_steps
from tasks.rollout.prompting import eos_token_ids, prefix_lengths
from tests.conftest import make_llama

TOKENIZER = build_tokenizer()
LENGTHS = prefix_lengths(TOKENIZER, eos_token_ids(None, TOKENIZER))


@pytest.fixture
def model(tmp_path):
    make_llama().save_pretrained(tmp_path)
    return RewardModel.from_policy(tmp_path, device="cpu", seed=0)


def config(**changes):
    split = {"kind": "separator", "separators": [",", "</think>"]}
    return StepsConfig.model_validate({"kind": "steps", "split": split, **changes})


def completion(text, *, ended=True):
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return {"prompt_token_ids": [1, 9], "completion_token_ids": [*ids, *[2] * ended], "text": text}


ROWS = [
    completion("<think>1+2=3,3+1=4</think><answer>4</answer>"),
    completion("12", ended=False),
    completion(""),
    completion("", ended=False),
]


def score(model, rows, max_tokens=100, **changes):
    return score_steps(model, rows, config(**changes), LENGTHS, micro_batch_tokens=1000, max_tokens=max_tokens)


def test_steps_end_where_their_text_ends_and_the_last_one_at_the_last_token(model):
    verdicts, steps = score(model, ROWS)
    assert steps[0].ends == (6, 12, 16)  # the comma, </think>, the end-of-sequence id
    assert steps[1].ends == (1,)
    assert steps[2:] == [None, None]
    assert [each.status for each in verdicts] == ["scored", "scored", "unscored", "unscored"]
    assert verdicts[2].reason == "the completion has no steps"
    assert (verdicts[0].reward, verdicts[1].reward) == (min(steps[0].rewards), steps[1].rewards[0])


def test_a_steps_reward_is_the_sigmoid_of_the_logit_that_training_reads_over_the_temperature(model):
    model.temperature = 2.0
    _, steps = score(model, ROWS)
    ids, positions = step_sequence([1, 9], ROWS[0]["completion_token_ids"], [6, 12, 16], 100)
    logits = score_sequences(model, [ids], [positions], micro_batch_tokens=1)[0]
    assert steps[0].rewards == pytest.approx([1 / (1 + math.exp(-each / 2)) for each in logits], abs=1e-6)


def test_a_completion_that_the_model_can_not_read_to_its_end_is_unscored_not_cut(model):
    num_tokens = 2 + len(ROWS[0]["completion_token_ids"])
    assert score(model, ROWS[:1], max_tokens=num_tokens)[1][0] is not None
    verdicts, steps = score(model, ROWS[:1], max_tokens=num_tokens - 1)
    assert (verdicts[0].status, verdicts[0].reward, steps[0]) == ("unscored", None, None)
    assert "max_tokens" in verdicts[0].reason


def test_a_number_that_is_not_finite_is_an_error_of_its_row(model):
    with torch.no_grad():
        model.head.bias.fill_(math.nan)
    verdicts, steps = score(model, ROWS)
    assert [each.status for each in verdicts] == ["error", "error", "unscored", "unscored"]
    assert steps == [None] * 4
    assert "gave nan" in verdicts[0].reason


@pytest.mark.parametrize(
    ("name", "expected"), [("min", 0.2), ("product", 0.04), ("last", 0.5), ("mean", (0.4 + 0.2 + 0.5) / 3)]
)
def test_a_reduction_makes_one_number_of_the_steps(name, expected):
    assert REDUCTIONS[name]([0.4, 0.2, 0.5]) == pytest.approx(expected)
    assert REDUCTIONS[name]([0.3]) == pytest.approx(0.3)


def test_the_setting_chooses_the_reduction(model):
    _, steps = score(model, ROWS)
    for name, reduction in REDUCTIONS.items():
        verdicts, _ = score(model, ROWS, reduction=name)
        assert verdicts[0].reward == reduction(steps[0].rewards)
