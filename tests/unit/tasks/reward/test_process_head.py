"""The process reward model: one logit per step, read at its last token, whatever stands around it."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tasks.policy.characters import build_tokenizer
from tasks.reward.head import RewardModel
from tasks.reward.process_head import ProcessRewardModel, step_columns
from tasks.reward.scorer import padded
from tasks.reward.step_scorer import step_logits, step_sequence
from tests.conftest import make_gpt2, make_llama

CPU = torch.device("cpu")


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
    return ProcessRewardModel.from_policy(tmp_path / "policy", device="cpu", seed=0)


def read(model, ids, positions, length):
    with torch.no_grad():
        return model(
            torch.tensor([ids]),
            torch.tensor([length]),
            torch.zeros(len(positions), dtype=torch.long),
            torch.tensor(positions),
        ).tolist()


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


SEQUENCES = [([5, 2], [1]), ([6] * 9, [0, 4, 8]), ([7, 8, 9, 2], [1, 3]), ([5, 5, 5], []), ([4, 4], [0, 1])]


def test_the_steps_of_a_sequence_do_not_depend_on_its_batch(model):
    together = step_logits(model, SEQUENCES, micro_batch_tokens=1000)
    apart = step_logits(model, SEQUENCES, micro_batch_tokens=1)
    alone = [step_logits(model, [each], micro_batch_tokens=1)[0] for each in SEQUENCES]
    assert [len(found) for found in together] == [1, 3, 2, 0, 2]
    for found in (apart, alone):
        assert [len(each) for each in found] == [1, 3, 2, 0, 2]
        for left, right in zip(together, found, strict=True):
            assert left == pytest.approx(right, abs=1e-5)


def test_two_readings_are_equal_although_the_backbone_has_dropout(model):
    model.train()
    first = step_logits(model, SEQUENCES, micro_batch_tokens=20)
    model.train()
    assert step_logits(model, SEQUENCES, micro_batch_tokens=20) == first


def test_training_and_scoring_read_the_same_ids_and_positions():
    assert step_sequence([1, 4], [5, 6, 2], [0, 2], 10) == ([1, 4, 5, 6, 2], [2, 4])  # finished: its own eos, once
    assert step_sequence([1, 4], [5, 6, 7], [0, 2], 10) == ([1, 4, 5, 6, 7], [2, 4])  # cut by the limit: none is added
    assert step_sequence([1, 4], [5, 6, 7], [0, 1, 2], 4) == ([1, 4, 5, 6], [2, 3])  # a step behind the cut is not read


@pytest.mark.parametrize("position", [-1, 3])
def test_a_position_outside_its_row_is_refused(position):
    with pytest.raises(ValueError, match=rf"step end {position} is not within the 3 tokens of row 1"):
        step_columns([[0], [1, position]], [4, 3], CPU)


def test_the_columns_of_a_batch_name_row_and_position_of_every_step():
    rows_N, columns_N = step_columns([[1, 3], [], [0]], [4, 2, 1], CPU)
    assert (rows_N.tolist(), columns_N.tolist()) == ([0, 0, 2], [1, 3, 0])
    assert [each.tolist() for each in step_columns([[], []], [1, 1], CPU)] == [[], []]


def test_a_saved_model_reads_the_same_to_the_last_bit_and_an_outcome_model_is_no_process_model(model, tmp_path):
    model.save(tmp_path / "saved")
    loaded = ProcessRewardModel.load(tmp_path / "saved", device="cpu")
    assert step_logits(loaded, SEQUENCES, micro_batch_tokens=9) == step_logits(model, SEQUENCES, micro_batch_tokens=9)
    with pytest.raises(ValueError, match="is no process reward model"):
        ProcessRewardModel.load(tmp_path / "policy", device="cpu")
    with pytest.raises(ValueError, match="is no reward model"):
        RewardModel.load(tmp_path / "saved", device="cpu")


def test_logits_are_float32(model):
    ids, lengths = padded([[5, 6]], CPU)
    assert model.half()(ids, lengths, *step_columns([[1]], [2], CPU)).dtype == torch.float32
