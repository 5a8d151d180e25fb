"""Warm-up, clipping, refusal and state of the optimiser."""

import pytest
import torch
from torch import nn

from tasks.runtime.optimiser import NonFinite, Optimiser, learning_rate_at
from tasks.values.optimiser import OptimiserConfig


def parameter(value=1.0):
    return nn.Parameter(torch.tensor([value]))


def test_the_rate_rises_linearly_and_then_stays():
    config = OptimiserConfig(learning_rate=1.0, num_warmup_updates=4)
    assert [learning_rate_at(update, config) for update in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert learning_rate_at(0, OptimiserConfig(learning_rate=0.5)) == 0.5


def test_the_first_adam_step_moves_by_the_rate_against_the_gradient():
    weight = parameter()
    optimiser = Optimiser([("w", weight)], OptimiserConfig(learning_rate=0.1))
    weight.grad = torch.tensor([4.0])
    assert optimiser.update() == pytest.approx(4.0)
    assert weight.item() == pytest.approx(0.9, abs=1e-6)


def test_the_norm_is_reported_before_clipping_and_applied_after():
    weight = parameter()
    optimiser = Optimiser([("w", weight)], OptimiserConfig(learning_rate=0.1, max_grad_norm=0.5))
    weight.grad = torch.tensor([4.0])
    optimiser.update()
    assert optimiser._adamw.state[weight]["exp_avg"].item() == pytest.approx(0.1 * 0.5, rel=1e-4)


def test_a_gradient_that_is_not_finite_changes_nothing():
    weight = parameter()
    optimiser = Optimiser([("w", weight)], OptimiserConfig(learning_rate=0.1))
    weight.grad = torch.tensor([float("inf")])
    with pytest.raises(NonFinite, match="inf"):
        optimiser.update()
    assert weight.item() == 1.0
    assert optimiser.num_updates == 0


def test_a_state_of_other_parameters_is_refused(tmp_path):
    weight = parameter()
    optimiser = Optimiser([("w", weight)], OptimiserConfig(learning_rate=0.1))
    weight.grad = torch.tensor([1.0])
    optimiser.update()
    optimiser.save(tmp_path)
    with pytest.raises(ValueError, match="other parameters"):
        Optimiser([("v", parameter())], OptimiserConfig(learning_rate=0.1)).load(tmp_path)


def test_the_state_comes_back_bit_for_bit_and_without_pickle(tmp_path):
    weight = parameter()
    optimiser = Optimiser([("w", weight)], OptimiserConfig(learning_rate=0.1))
    for gradient in (1.0, -0.3, 0.7):
        weight.grad = torch.tensor([gradient])
        optimiser.update()
    optimiser.save(tmp_path)
    copy = parameter(weight.item())
    loaded = Optimiser([("w", copy)], OptimiserConfig(learning_rate=0.1))
    loaded.load(tmp_path)
    assert loaded.num_updates == 3
    for each, of in ((weight, optimiser), (copy, loaded)):
        each.grad = torch.tensor([0.5])
        of.update()
    assert torch.equal(weight, copy)
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors", ".json"}


def test_a_state_of_another_shape_is_refused_and_changes_nothing(tmp_path):
    weight = parameter()
    optimiser = Optimiser([("w", weight)], OptimiserConfig(learning_rate=0.1))
    weight.grad = torch.tensor([1.0])
    optimiser.update()
    optimiser.save(tmp_path)
    wider = Optimiser([("w", nn.Parameter(torch.zeros(2)))], OptimiserConfig(learning_rate=0.1))
    with pytest.raises(ValueError, match=r"w is \[1\] there and \[2\] in the model"):
        wider.load(tmp_path)
    assert wider.num_updates == 0


def test_warm_up_and_decay_act_on_the_weight():
    weight = parameter(2.0)
    config = OptimiserConfig(learning_rate=0.1, num_warmup_updates=1, weight_decay=0.5)
    optimiser = Optimiser([("w", weight)], config)
    expected = 2.0
    for rate in (0.05, 0.1):  # a constant gradient: Adam's own step is the rate
        weight.grad = torch.tensor([0.5])
        optimiser.update()
        expected = expected * (1 - rate * 0.5) - rate
        assert weight.item() == pytest.approx(expected, abs=1e-5)
