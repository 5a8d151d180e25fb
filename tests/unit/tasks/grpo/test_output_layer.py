"""The output layer and the log-softmax as one operation: values and gradients of the plain formula."""

import math

import pytest
import torch
from torch import nn

from tasks.grpo import logprobs
from tasks.grpo.output_layer import SelectedLogprobs, takes_selected_logprobs
from tests.conftest import make_llama

TEMPERATURES = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.7], dtype=torch.float64)
TARGETS = torch.tensor([0, 6, 3, 3, 1])


def leaves():
    torch.manual_seed(0)
    shapes = ((5, 4), (7, 4), (7,))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def plain(hidden, weight, bias, softcap):
    logits = nn.functional.linear(hidden, weight, bias)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logprobs_NV = torch.log_softmax(logits / TEMPERATURES[:, None], -1)
    entropy = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
    return logprobs_NV.gather(1, TARGETS[:, None])[:, 0], entropy


def ours(hidden, weight, bias, softcap, chunk):
    return SelectedLogprobs.apply(hidden, weight, bias, TARGETS, TEMPERATURES, softcap, chunk)


@pytest.mark.parametrize("chunk", [1, 2, 99])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("entropy_weight", [0.0, 0.3])
def test_values_and_gradients_are_those_of_the_formula(chunk, softcap, entropy_weight):
    found = []
    for of in (plain, lambda *each: ours(*each, chunk)):
        inputs = leaves()
        values_N, entropy_N = of(*inputs, softcap)
        (values_N * torch.arange(1, 6) + entropy_weight * entropy_N * torch.arange(5)).sum().backward()
        found.append([values_N.detach(), entropy_N.detach(), *(each.grad for each in inputs)])
    for expected, value in zip(*found, strict=True):
        assert (expected - value).abs().max() < 1e-12


def test_by_hand_two_tokens_of_two_logits():
    hidden = torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[math.log(3.0)], [0.0]], dtype=torch.float64, requires_grad=True)  # p = 3/4, 1/4
    ones = torch.ones(1, dtype=torch.float64)
    value, entropy = SelectedLogprobs.apply(hidden, weight, None, torch.tensor([0]), ones, None, 8)
    assert value.item() == pytest.approx(math.log(0.75), abs=1e-12)
    assert entropy.item() == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs=1e-12)
    value.backward()
    assert weight.grad[:, 0].tolist() == pytest.approx([0.25, -0.25], abs=1e-12)
    assert hidden.grad.item() == pytest.approx(0.25 * math.log(3.0), abs=1e-12)


def test_a_frozen_output_layer_gets_no_gradient_and_the_hidden_states_theirs():
    hidden, weight, bias = leaves()
    values_N, _ = ours(hidden, weight.detach(), bias.detach(), None, 2)
    values_N.sum().backward()
    assert weight.grad is None
    assert hidden.grad.abs().max() > 0.1


def test_the_whole_of_the_logits_is_never_held(monkeypatch):
    shapes = []
    softmax = torch.log_softmax
    monkeypatch.setattr(torch, "log_softmax", lambda tensor, dim: shapes.append(len(tensor)) or softmax(tensor, dim))
    values_N, _ = ours(*leaves(), None, 2)
    values_N.sum().backward()
    assert shapes == [2, 2, 1] * 2


def test_a_layer_with_a_hook_or_of_another_class_is_called_as_the_module_that_it_is():
    class Scaled(nn.Linear):
        def forward(self, hidden):
            return super().forward(hidden) * 2

    assert takes_selected_logprobs(nn.Linear(2, 3))
    assert not takes_selected_logprobs(Scaled(2, 3))
    hooked = nn.Linear(2, 3)
    hooked.register_forward_hook(lambda *_: None)
    assert not takes_selected_logprobs(hooked)


@pytest.mark.parametrize("chunk", [1 << 24, 32 * 3])
def test_the_module_path_gives_the_same_numbers(monkeypatch, chunk):
    monkeypatch.setattr(logprobs, "CHUNK_LOGITS", chunk)
    from tasks.grpo.batch import TokenSequence, pad

    batch = pad([TokenSequence(0, [1, 5], [7, 8, 9, 2]), TokenSequence(1, [1, 5], [3] * 9)], "cpu")
    found = []
    for is_taken in (True, False):
        monkeypatch.setattr(logprobs, "takes_selected_logprobs", lambda output, is_taken=is_taken: is_taken)
        model = make_llama()
        of = logprobs.completion_logprobs(model, batch, torch.tensor([0.7, 1.0]), logprobs.entropy_of)
        (of.logprobs_BC.sum() + 0.3 * of.entropy_BC.sum()).backward()
        found.append((of.logprobs_BC.detach(), model.model.embed_tokens.weight.grad))
    for expected, value in zip(*found, strict=True):
        assert torch.allclose(expected, value, atol=1e-5)
