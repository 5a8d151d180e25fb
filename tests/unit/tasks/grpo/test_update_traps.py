"""Known mistakes of trainers, with the numbers at which each shows."""

import copy
import math

import pytest
import torch

from tasks.grpo.batch import TokenSequence, pad
from tasks.grpo.config import UpdateConfig
from tasks.grpo.layouts import batches_of, layout_for
from tasks.grpo.logprobs import completion_logprobs, selected_logprobs_and_entropy
from tasks.grpo.trainer import PolicyTrainer
from tests.conftest import make_gpt2, make_llama

LOGITS = torch.tensor([[2.0, 1.0, 0.0]])


def logprob(temperature):
    return selected_logprobs_and_entropy(LOGITS, torch.tensor([0]), torch.tensor([temperature]))[0].item()


class TestTemperature:
    def test_both_sides_at_the_sampling_temperature_have_ratio_one_and_mixed_sides_have_not(self):
        assert logprob(0.5) == pytest.approx(-0.142932, abs=1e-6)
        assert math.exp(logprob(0.5) - logprob(0.5)) == 1.0
        assert math.exp(logprob(1.0) - logprob(0.5)) == pytest.approx(0.767456, abs=1e-6)

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_a_samplers_numbers_at_its_temperature_give_the_trainer_ratio_one(self, temperature):
        model = make_llama()
        ids, prompt = [7, 8, 9, 2], [1, 5, 6]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, 2:-1] / temperature
        said = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
        metrics = update([row(0, 1.0, ids=ids, sampler_logprobs=said, temperature=temperature)], model=model)
        assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-5)
        assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


class TestPadIsEos:
    def test_the_completions_own_eos_stays_and_the_padding_goes(self):
        batch = pad([TokenSequence(0, [1], [10, 11, 2]), TokenSequence(1, [1], [4] * 5)], "cpu")
        assert batch.completion_mask_BC[0].int().tolist() == [1, 1, 1, 0, 0]

    def test_an_eos_inside_the_prompt_is_seen(self):
        batch = pad([TokenSequence(0, [1, 9, 2, 198], [5])], "cpu")
        assert batch.attention_mask_BT[0, :4].tolist() == [1, 1, 1, 1]

    def test_the_eos_that_ends_a_completion_is_trained_on(self):
        metrics = update([row(0, 1.0, ids=[10, 11, 2]), row(1, -1.0, ids=[4] * 5)])
        assert metrics["num_trained_tokens"] == 3 + 5


@pytest.mark.parametrize("make", [make_gpt2, make_llama])
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_company_and_padding_by_three_change_no_log_probability(make, layout):
    model = make()
    assert layout_for(model, layout) == layout
    with torch.no_grad():
        alone = torch.log_softmax(model(input_ids=torch.tensor([[5, 6, 7, 8]])).logits[0, 1:-1], -1)
        expected = alone.gather(1, torch.tensor([[7], [8]]))[:, 0]
        sequences = [TokenSequence(0, [5, 6], [7, 8]), TokenSequence(1, [5, 6], [9, 9, 3, 4, 4])]
        (batch,) = batches_of(layout, model, sequences, 1000)
        found = completion_logprobs(model, batch, torch.ones(2)).logprobs_BC[batch.rows.index(0), :2]
    assert (found - expected).abs().max() < 1e-5


def row(index, advantage, *, ids=(7, 8, 9), signal=True, masked=False, **changes):
    return {
        "group_id": "g",
        "sample_index": index,
        "prompt_token_ids": [1, 5, 6],
        "completion_token_ids": list(ids),
        "sampler_logprobs": None,
        "temperature": 1.0,
        "advantage": advantage,
        "token_advantages": None,
        "is_masked": masked,
        "has_signal": signal,
        **changes,
    }


def update(rows, *, model=None, **changes):
    settings = {"algorithm": "grpo", "optimiser": {"learning_rate": 1e-2}, "kl": "none", **changes}
    trainer = PolicyTrainer(model or make_llama(), UpdateConfig.model_validate(settings))
    return trainer.update(rows, reference=None, max_new_tokens=8, seed=1, on_progress=lambda done, total: None)


NOTHING_USABLE = {
    "all right": [row(index, 0.0, signal=False) for index in range(4)],
    "no prompts": [],
    "every completion empty": [row(index, 1.0, ids=()) for index in range(4)],
    "all masked": [row(index, 1.0, masked=True) for index in range(4)],
}


@pytest.mark.parametrize("case", NOTHING_USABLE)
@pytest.mark.parametrize("changes", [{}, {"num_epochs": 2, "minibatch_completions": 1}])
def test_a_step_without_a_usable_group_leaves_every_bit_and_makes_up_no_number(case, changes):
    model = make_llama()
    before = copy.deepcopy(model.state_dict())
    metrics = update(NOTHING_USABLE[case], model=model, **changes)
    assert metrics["num_updates"] == 0
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not {"loss", "grad_norm", "ratio_mean", "entropy", "kl"} & set(metrics)
    assert all(math.isfinite(value) for value in metrics.values())


def test_empty_completions_among_others_change_neither_loss_nor_gradient():
    usable = [row(0, 1.0), row(1, -0.5, ids=(9, 3))]
    alone, among = update(usable), update([*usable, row(2, 5.0, ids=())], micro_batch_tokens=1)
    for name in ("loss", "policy_loss", "grad_norm", "num_trained_tokens"):
        assert among[name] == pytest.approx(alone[name], rel=1e-5), name
