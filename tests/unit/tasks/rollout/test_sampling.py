"""The draw: which token, with which log-probability."""

import math

import pytest
import torch

from tasks.rollout import sampling
from tasks.rollout.sampling import most_likely, sample, uniforms_of

LN = [math.log(each) for each in (0.5, 0.3, 0.15, 0.05)]


def drawn(logits, uniforms, temperature=1.0):
    tokens, logprobs = sample(torch.tensor([logits]).repeat(len(uniforms), 1), uniforms, temperature)
    return tokens.tolist(), logprobs.tolist()


def test_a_uniform_picks_the_token_whose_interval_it_falls_into():
    tokens, logprobs = drawn(LN, [0.0, 0.49, 0.51, 0.79, 0.81, 0.94, 0.96, 1 - 2**-53])
    assert tokens == [0, 0, 1, 1, 2, 2, 3, 3]
    assert logprobs == pytest.approx([LN[token] for token in tokens], abs=1e-6)


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, -0.407606), (0.5, -0.142932), (2.0, -0.680270)])
def test_the_log_probability_is_of_the_tempered_distribution(temperature, expected):
    """Logits [2, 1, 0], token 0."""
    tokens, logprobs = drawn([2.0, 1.0, 0.0], [0.0], temperature)
    assert (tokens, logprobs) == ([0], pytest.approx([expected], abs=1e-6))


def test_a_trainer_that_forgets_the_temperature_sees_a_ratio_of_0_767():
    engine = drawn([2.0, 1.0, 0.0], [0.0], 0.5)[1][0]
    trainer_at_1, trainer_at_half = drawn([2.0, 1.0, 0.0], [0.0])[1][0], engine
    assert math.exp(trainer_at_1 - engine) == pytest.approx(0.767456, abs=1e-6)
    assert math.exp(trainer_at_half - engine) == 1.0


@pytest.mark.parametrize("size", [1, 5, 511, 512, 513, 1024, 1031])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_blocks_change_neither_token_nor_log_probability(size, temperature):
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(64, size, generator=generator) * 3
    uniforms = [*torch.rand(61, dtype=torch.float64, generator=generator).tolist(), 0.0, 0.5, 1 - 2**-53]
    logprobs = torch.log_softmax(logits.double() / temperature, -1)
    cumulative = logprobs.exp().cumsum(-1)
    tokens, found = sample(logits.clone(), uniforms, temperature)
    for row, (token, uniform) in enumerate(zip(tokens.tolist(), uniforms, strict=True)):
        below = float(cumulative[row, token - 1]) if token else 0.0
        assert below - 1e-6 <= uniform <= float(cumulative[row, token]) + 1e-6
    assert found.tolist() == pytest.approx(logprobs.gather(1, tokens[:, None]).flatten().tolist(), abs=1e-5)


@pytest.mark.parametrize("block", [256, 2])
def test_a_token_of_probability_zero_is_never_drawn(block, monkeypatch):
    monkeypatch.setattr(sampling, "BLOCK", block)
    logits = torch.tensor([[-math.inf, -math.inf, 0.0, -math.inf, -math.inf, -math.inf, 0.0, -math.inf]]).repeat(
        1000, 1
    )
    uniforms = [*torch.linspace(0, 1, 998, dtype=torch.float64)[:-1].tolist(), 0.0, 0.5, 1 - 2**-53]
    tokens, logprobs = sample(logits, uniforms, 1.0)
    assert set(tokens.tolist()) == {2, 6}
    assert logprobs.tolist() == pytest.approx([-math.log(2)] * 1000)


def test_a_row_without_a_distribution_says_nan_and_spoils_no_other():
    logits = torch.tensor([[0.0, 1.0], [math.nan, 1.0], [0.0, math.inf]])
    tokens, logprobs = sample(logits, [0.9, 0.9, 0.9], 1.0)
    assert [math.isnan(each) for each in logprobs.tolist()] == [False, True, True]
    assert logprobs[0].item() == pytest.approx(-math.log(1 + math.exp(-1)))
    assert all(0 <= token < 2 for token in tokens.tolist())


def test_bfloat16_logits_are_drawn_from_in_float32():
    logits = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.bfloat16)
    assert sample(logits, [0.0], 1.0)[1].item() == pytest.approx(-0.407606, abs=1e-6)


def test_the_most_likely_token_has_its_log_probability_at_temperature_1():
    tokens, logprobs = most_likely(torch.tensor([[0.0, 2.0, 1.0]]), [])
    assert (tokens.tolist(), logprobs.tolist()) == ([1], pytest.approx([-0.407606], abs=1e-6))


def test_the_numbers_of_a_seed_are_its_own_and_begin_alike_whatever_their_count():
    assert uniforms_of(1, 5) == uniforms_of(1, 9)[:5]
    assert uniforms_of(1, 5) != uniforms_of(2, 5)
    assert all(0 <= each < 1 for each in uniforms_of(3, 1000))
