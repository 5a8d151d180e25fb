"""A process reward model: one score per step, read at its last token, whatever stands around it."""

import math

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tasks.policy.characters import build_tokenizer
from tasks.reward.config import RewardTrainingConfig
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import LABELS
from tasks.reward.measures import judge_rows
from tasks.reward.scorer import score_sequences
from tasks.reward.step_examples import judge_step, step_example, step_sequence
from tasks.reward.step_kinds import StepsConfig
from tasks.reward.trainer import RewardTrainer
from tests.conftest import make_gpt2, make_llama

KIND = LABELS[StepsConfig]


def make_qwen2():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, initializer_range=0.3, eos_token_id=2, pad_token_id=2, attention_dropout=0.5,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


FAMILIES = {"llama": make_llama, "qwen2": make_qwen2, "gpt2": make_gpt2}


@pytest.fixture(params=FAMILIES)
def model(request, tmp_path):
    FAMILIES[request.param]().save_pretrained(tmp_path / "policy")
    build_tokenizer().save_pretrained(tmp_path / "policy")
    return RewardModel.from_policy(tmp_path / "policy", device="cpu", seed=0)


def read(model, ids, positions, length):
    with torch.no_grad():
        return model.scores_at(torch.tensor([ids]), torch.tensor([length]), [positions]).tolist()


def test_padding_changes_no_step(model):
    alone = read(model, [5, 6, 7, 8], [1, 3], 4)
    assert read(model, [5, 6, 7, 8, 0, 0], [1, 3], 4) == pytest.approx(alone, abs=1e-5)
    assert read(model, [5, 6, 7, 8, 2, 2], [1, 3], 4) == pytest.approx(alone, abs=1e-5)
    assert abs(alone[0] - alone[1]) > 1e-3


def test_a_step_is_read_at_its_own_last_token_also_when_that_is_the_pad_id(model):
    ids = [5, 6, 2, 7, 8, 2, 2, 2]
    with torch.no_grad():
        hidden = model.backbone(input_ids=torch.tensor([ids[:6]])).last_hidden_state
        expected = model.head(hidden[0, [2, 5]]).squeeze(-1).tolist()
    assert read(model, ids, [2, 5], 6) == pytest.approx(expected, abs=1e-5)


def test_a_step_does_not_see_what_follows_it(model):
    first = read(model, [5, 6, 7, 8], [1], 4)
    assert read(model, [5, 6, 9, 9], [1], 4) == pytest.approx(first, abs=1e-5)
    assert read(model, [5, 6], [1], 2) == pytest.approx(first, abs=1e-5)


SEQUENCES = [[5, 2], [6] * 9, [7, 8, 9, 2], [5, 5, 5], [4, 4]]
POSITIONS = [[1], [0, 4, 8], [1, 3], [], [0, 1]]


def test_the_steps_of_a_sequence_do_not_depend_on_its_batch(model):
    together = score_sequences(model, SEQUENCES, POSITIONS, micro_batch_tokens=1000)
    apart = score_sequences(model, SEQUENCES, POSITIONS, micro_batch_tokens=1)
    alone = [
        score_sequences(model, [ids], [at], micro_batch_tokens=1)[0]
        for ids, at in zip(SEQUENCES, POSITIONS, strict=True)
    ]
    assert [len(found) for found in together] == [1, 3, 2, 0, 2]
    for found in (apart, alone):
        assert [len(each) for each in found] == [1, 3, 2, 0, 2]
        for left, right in zip(together, found, strict=True):
            assert left == pytest.approx(right, abs=1e-5)


def test_training_and_scoring_read_the_same_ids_and_positions():
    assert step_sequence([1, 4], [5, 6, 2], [0, 2], 10) == ([1, 4, 5, 6, 2], [2, 4])  # finished: its own eos, once
    assert step_sequence([1, 4], [5, 6, 7], [0, 2], 10) == ([1, 4, 5, 6, 7], [2, 4])  # cut by the limit: none is added
    assert step_sequence([1, 4], [5, 6, 7], [0, 1, 2], 4) == ([1, 4, 5, 6], [2, 3])  # a step behind the cut is not read


def row(name, completion, ends, labels, replayed=False):
    return {
        "label_id": name,
        "prompt_token_ids": [1, 4],
        "completion_token_ids": completion,
        "step_ends": ends,
        "step_labels": labels,
        "is_replayed": replayed,
    }


def test_an_example_holds_one_target_per_step_that_the_cut_leaves():
    given = row("a", [5, 6, 7, 2], [0, 2, 3], [1.0, 0.25, 0.0])
    whole = step_example(given, 10)
    assert (whole.sequences, whole.positions) == (([1, 4, 5, 6, 7, 2],), ([2, 4, 5],))
    assert (whole.targets, whole.num_tokens) == ((1.0, 0.25, 0.0), (4,))
    cut = step_example(given, 5)
    assert (cut.sequences, cut.positions, cut.targets) == (([1, 4, 5, 6, 7],), ([2, 4],), (1.0, 0.25))
    assert step_example(given, 2) is None


@pytest.mark.parametrize("labels", [[1.0], [1.0, 1.5], [1.0, -0.1], [1.0, float("nan")]])
def test_labels_that_are_not_one_share_per_step_are_refused(labels):
    with pytest.raises(ValueError, match="label a has the steps"):
        step_example(row("a", [5, 2], [0, 1], labels), 10)


def test_a_step_is_judged_by_its_own_score_and_is_as_long_as_the_completion_up_to_it():
    judged = judge_step(step_example(row("a", [5, 6, 7, 2], [0, 2, 3], [1.0, 0.25, 0.0]), 10), [2.0, -1.0, 0.5])
    assert (judged.logits, judged.targets) == ((2.0, -1.0, 0.5), (1.0, 0.25, 0.0))
    assert (judged.scores, judged.labels, judged.lengths) == ((2.0, -1.0, 0.5), (1.0, 0.25, 0.0), (1, 3, 4))


ROWS = [
    row("a", [5, 9, 6, 2], [1, 3], [1.0, 0.25]),
    row("b", [7, 10, 11], [0, 1, 2], [0.75, 0.0, 0.0]),
    row("c", [8, 2], [1], [1.0], replayed=True),
]


def said(model):
    return [judged for _, judged in judge_rows(model, ROWS, KIND, micro_batch_tokens=99, max_tokens=50)]


def trained(model, **changes):
    settings = {"optimiser": {"learning_rate": 1e-2}, "batch_labels": 3, **changes}
    config = RewardTrainingConfig.model_validate(settings)
    return RewardTrainer(model, config, KIND).train(ROWS, seed=0, on_progress=lambda done, total: None)


def test_the_training_loss_is_the_mean_over_all_steps_of_the_scorers_numbers_although_the_backbone_has_dropout(model):
    logits = [logit for each in said(model) for logit in each.logits]
    labels = [label for each in ROWS for label in each["step_labels"]]
    expected = sum(
        label * math.log1p(math.exp(-logit)) + (1 - label) * math.log1p(math.exp(logit))
        for logit, label in zip(logits, labels, strict=True)
    )
    model.train()  # whoever had it before: the trainer switches dropout off
    metrics = trained(model)
    assert metrics["loss"] == pytest.approx(expected / 6, abs=1e-5)
    assert (metrics["num_fresh"], metrics["num_replayed"], metrics["num_training_labels"]) == (2, 1, 3)


def test_micro_batches_do_not_change_the_training_although_rows_have_different_numbers_of_steps(model, tmp_path):
    model.save(tmp_path / "start")
    whole, apart = (
        trained(RewardModel.load(tmp_path / "start", device="cpu"), micro_batch_tokens=budget) for budget in (10_000, 1)
    )
    assert whole["loss"] == pytest.approx(apart["loss"], rel=1e-5)
    assert whole["grad_norm"] == pytest.approx(apart["grad_norm"], rel=1e-4)


def test_it_learns_which_steps_are_right(model):
    trained(model, num_epochs=60)
    judged = said(model)
    assert [[logit > 0 for logit in each.logits] for each in judged] == [[True, False], [True, False, False], [True]]
    assert KIND.measure(judged)["first_wrong_f1"] == 1.0
