"""Log-probabilities of completion tokens."""

import math

import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM

from tasks.grpo import logprobs as module
from tasks.grpo.batch import TokenSequence, micro_batches, pad
from tasks.grpo.logprobs import (
    check_output_layer,
    completion_logprobs,
    detached_entropy,
    entropy_of,
    selected_logprobs_and_entropy,
)
from tests.conftest import make_gpt2, make_llama

PROMPT, COMPLETION = [1, 5, 6], [7, 8, 9, 2]


def reference(model, prompt, completion, temperature):
    """A plain forward of one unpadded sequence."""
    ids = torch.tensor([[*prompt, *completion]])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits.float(), dim=-1).gather(1, torch.tensor(completion)[:, None]).squeeze(1)


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, -0.407606), (0.5, -0.142932), (2.0, -0.680270)])
def test_logits_are_divided_by_the_temperature(temperature, expected):
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    found, _ = selected_logprobs_and_entropy(logits, torch.tensor([0]), torch.tensor([temperature]))
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_a_token_that_can_not_occur_adds_nothing_to_the_entropy():
    logits = torch.tensor([[0.0, 0.0, -math.inf]])
    _, entropy = selected_logprobs_and_entropy(logits, torch.tensor([0]), torch.tensor([1.0]))
    assert entropy.item() == pytest.approx(math.log(2), abs=1e-6)


def test_the_gradient_of_the_entropy_is_finite_where_a_token_can_not_occur():
    logits = torch.tensor([[0.0, 0.0, -math.inf], [1.0, 0.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    entropy = entropy_of(torch.log_softmax(logits, -1))
    assert entropy[0].item() == pytest.approx(math.log(2), abs=1e-12)
    entropy.sum().backward()
    assert logits.grad[0].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)
    p, q = 1 / (1 + math.exp(-1)), 1 / (1 + math.e)  # d entropy / d logit_i = -p_i (log p_i + entropy)
    expected = [-p * (math.log(p) + entropy[1].item()), -q * (math.log(q) + entropy[1].item()), 0.0]
    assert logits.grad[1].tolist() == pytest.approx(expected, abs=1e-12)


def test_the_entropy_as_a_metric_has_no_gradient():
    logits = torch.tensor([[1.0, 0.0]], requires_grad=True)
    assert not detached_entropy(torch.log_softmax(logits, -1)).requires_grad


@pytest.mark.parametrize("make", [make_llama, make_gpt2])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_padding_and_company_do_not_change_log_probabilities(make, temperature):
    model = make()
    long = TokenSequence(1, [1, 4, 4, 4, 4, 4], [9] * 12)
    batch = pad([long, TokenSequence(0, PROMPT, COMPLETION)], "cpu")
    with torch.no_grad():
        found = completion_logprobs(model, batch, torch.full((2,), temperature))
        expected = reference(model, PROMPT, COMPLETION, temperature)
    assert found.logprobs_BC[1, :4].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.logprobs_BC[1, 4:].tolist() == [0.0] * 8


def test_small_chunks_give_the_same_values_and_gradients(monkeypatch):
    gradients, values = [], []
    for chunk in (1 << 24, 32 * 3):
        monkeypatch.setattr(module, "CHUNK_LOGITS", chunk)
        model = make_llama()
        batch = pad([TokenSequence(0, PROMPT, COMPLETION), TokenSequence(1, PROMPT, [3] * 9)], "cpu")
        found = completion_logprobs(model, batch, torch.ones(2)).logprobs_BC
        found.sum().backward()
        values.append(found.detach())
        gradients.append(model.model.embed_tokens.weight.grad.clone())
    assert torch.allclose(values[0], values[1], atol=1e-6)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-5)


def test_the_mask_comes_from_lengths_also_when_the_pad_id_is_an_eos_id():
    batch = pad([TokenSequence(0, [1, 9, 2, 3], [10, 11, 2]), TokenSequence(1, [1], [4] * 5)], "cpu")
    assert batch.completion_mask_BC.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert batch.attention_mask_BT.sum(dim=1).tolist() == [7, 6]


def test_a_prompt_without_tokens_is_refused():
    with pytest.raises(ValueError, match="no tokens"):
        completion_logprobs(make_llama(), pad([TokenSequence(0, [], [4])], "cpu"), torch.ones(1))


def test_micro_batches_stay_within_the_budget_and_lose_nobody():
    sequences = [TokenSequence(row, [1] * (row % 5 + 1), [2] * (row % 7 + 1)) for row in range(40)]
    batches = micro_batches(sequences, 30)
    assert sorted(each.row for batch in batches for each in batch) == list(range(40))
    assert all(len(batch) * max(each.num_tokens for each in batch) <= 30 for batch in batches)
    assert len(micro_batches([TokenSequence(0, [1] * 50, [2])], 30)) == 1


def test_a_model_that_scales_its_logits_is_refused_and_a_plain_one_is_not():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    scaled = GraniteConfig(vocab_size=32, num_key_value_heads=2, initializer_range=0.3, logits_scaling=8.0, **sizes)
    with pytest.raises(ValueError, match="GraniteForCausalLM changes its logits"):
        check_output_layer(GraniteForCausalLM(scaled).eval())
    check_output_layer(make_llama())
    check_output_layer(make_gpt2())
