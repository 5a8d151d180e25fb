import pytest
import torch

from tasks.runtime import precision


def test_auto_is_float32_on_a_cpu_that_multiplies_bfloat16_too(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: True)
    assert precision.compute_dtype("auto", "cpu") == torch.float32
    assert precision.compute_dtype("bfloat16", "cpu") == torch.bfloat16


@pytest.mark.parametrize(("is_there", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_on_a_gpu_that_has_it(monkeypatch, is_there, expected):
    monkeypatch.setattr(precision, "has_bfloat16", lambda device: is_there)
    assert precision.compute_dtype("auto", "cuda:0") == expected
