"""Packed weights: the same product, never an old weight, nothing left behind."""

import logging

import pytest
import torch
from torch import nn

from tasks.rollout import packed_linears as module
from tasks.rollout.packed_linears import packed_linears, packing_works


@pytest.fixture(autouse=True)
def _forget():
    packing_works.cache_clear()
    yield
    packing_works.cache_clear()


def layers(*, bias=True):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 320, bias=bias), nn.Tanh(), nn.Linear(320, 256, bias=bias))


@pytest.fixture
def packs(monkeypatch):
    """What was packed."""
    real, seen = torch.ops.mkldnn._reorder_linear_weight, []

    class Operators:
        _linear_pointwise = torch.ops.mkldnn._linear_pointwise

        @staticmethod
        def _reorder_linear_weight(weight, rows):
            seen.append(tuple(weight.shape))
            return real(weight, rows)

    monkeypatch.setattr(torch.ops, "mkldnn", Operators)
    return seen


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 256), (3, 256), (4, 1, 256), (9, 256), (2, 7, 256)])
def test_the_product_is_the_plain_one(bias, shape):
    model, inputs = layers(bias=bias), torch.randn(shape)
    with torch.inference_mode():
        expected = model(inputs)
        with packed_linears(model, 8):
            found = model(inputs)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_many_rows_take_the_packed_product_and_few_the_plain_one(monkeypatch):
    taken = []
    real = module._packed_product
    monkeypatch.setattr(
        module, "_packed_product", lambda inputs, *rest: taken.append(len(inputs)) or real(inputs, *rest)
    )
    assert packing_works()
    taken.clear()
    with torch.inference_mode(), packed_linears(layers(), 8) as _:
        pass
    model = layers()
    with torch.inference_mode(), packed_linears(model, 8):
        for rows in (1, 3, 4, 5):
            model(torch.randn(rows, 256))
    assert taken == [4, 4, 5, 5]


def test_weights_that_changed_in_place_are_packed_anew(packs):
    model, inputs = layers(), torch.randn(8, 256)
    for _ in range(2):
        with torch.inference_mode(), packed_linears(model, 8):
            found = model(inputs)
        torch.testing.assert_close(found, model(inputs), atol=1e-5, rtol=1e-4)
        with torch.no_grad():
            model[0].weight.mul_(-2)
    assert packs.count((320, 256)) == 2


def test_the_model_is_as_it_was_afterwards_also_after_an_error():
    model = layers()
    before = [dict(each.__dict__) for each in model]
    with packed_linears(model, 8):
        assert "forward" in model[0].__dict__
    assert [dict(each.__dict__) for each in model] == before
    with pytest.raises(ZeroDivisionError), packed_linears(model, 8):
        1 / 0  # noqa: B018
    assert [dict(each.__dict__) for each in model] == before
    model(torch.randn(8, 256)).sum().backward()
    assert model[0].weight.grad is not None


def test_a_forward_of_somebody_else_is_left_alone():
    model = layers()
    model[0].forward = lambda inputs: torch.zeros(len(inputs), 320)
    theirs = model[0].forward
    with packed_linears(model, 8):
        assert model[0].forward is theirs
    assert model[0].forward is theirs


def test_only_large_float32_layers_are_packed(packs):
    with (
        packed_linears(nn.Linear(16, 16), 8),
        packed_linears(layers().double(), 8),
        packed_linears(layers().bfloat16(), 8),
    ):
        pass
    assert packs == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda *_: torch.zeros(()), "off by"),
        (lambda inputs, *_: torch.full((len(inputs), 320), torch.nan), "off by nan"),
        (AttributeError("no such operator"), "not offered here"),
        (RuntimeError("mkldnn is off"), "mkldnn is off"),
    ],
)
def test_an_operator_that_is_missing_or_wrong_is_not_used_and_said_once(fault, said, monkeypatch, caplog):
    def broken(*arguments):
        if isinstance(fault, Exception):
            raise fault
        return fault(*arguments)

    monkeypatch.setattr(module, "_packed_product", broken)
    model, inputs = layers(), torch.randn(8, 256)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with torch.inference_mode(), packed_linears(model, 8):
                assert torch.equal(model(inputs), model(inputs))
                assert "forward" not in model[0].__dict__
    assert len(caplog.records) == 1
    assert said in caplog.text
