"""Laws of every objective with every aggregation, on log-probabilities in float64."""

import itertools
import math

import pytest
import torch

from tasks.grpo.aggregation import AGGREGATIONS
from tasks.grpo.algorithms import OBJECTIVES, MicroBatch, objective
from tasks.grpo.config import UpdateConfig

OBJECTIVE_SETTINGS = {
    "clip": {"kind": "clip"},
    "dual clip": {"kind": "clip", "dual_clip": 3.0},
    "sequence mean": {"kind": "sequence_clip", "clip_low": 0.2, "clip_high": 0.2},
    "sequence sum": {"kind": "sequence_clip", "length": "sum", "clip_low": 0.2, "clip_high": 0.2},
    "sequence token": {"kind": "sequence_token_clip", "clip_low": 0.2, "clip_high": 0.2},
    "cispo": {"kind": "cispo", "clip_high": 4.0},
    "log likelihood": {"kind": "log_likelihood"},
}
AGGREGATION_SETTINGS = ["sequence_mean", "token_mean", "fixed_length"]
PAIRS = list(itertools.product(OBJECTIVE_SETTINGS, AGGREGATION_SETTINGS))
LENGTHS = [3, 1, 4]
ADVANTAGES = [1.0, -0.5, 0.75]
MAX_NEW_TOKENS = 5
DENOMINATORS = {"sequence_mean": 3.0, "token_mean": 8.0, "fixed_length": 15.0}


def config(name, aggregation, **changes):
    settings = {
        "optimiser": {"learning_rate": 1.0},
        "objective": OBJECTIVE_SETTINGS[name],
        "aggregation": aggregation,
        "kl": "none",
    }
    return UpdateConfig.model_validate({**settings, **changes})


def batch(rows=(0, 1, 2), *, width=4, shift=0.0, filler=0.0):
    """Rows of policy log-probabilities that require a gradient; ``shift`` is the log-ratio of every token."""
    mask = torch.tensor([[column < LENGTHS[row] for column in range(width)] for row in rows])
    base = torch.tensor([[-0.5 - 0.3 * row - 0.1 * column for column in range(width)] for row in rows]).double()

    def filled(values):
        return torch.where(mask, values, torch.tensor(filler, dtype=torch.float64))

    policy = filled(base).clone().requires_grad_()
    advantages = torch.tensor([[ADVANTAGES[row]] * width for row in rows]).double()
    return MicroBatch(
        policy_logprobs_BC=policy,
        proximal_logprobs_BC=filled(base - shift),
        reference_logprobs_BC=filled(base + 0.4),
        advantages_BC=filled(advantages),
        mask_BC=mask,
        correction_BC=filled(torch.ones_like(base)),
        entropy_BC=filled(torch.full_like(base, 0.7)),
    )


def evaluated(settings, *batches):
    """Loss and the gradient of each row's own tokens, over micro-batches."""
    denominator = DENOMINATORS[settings.aggregation.kind]
    loss, gradients, sums = 0.0, [], {}
    for each in batches:
        found = objective(each, settings, denominator)
        found.loss.backward()
        loss += found.loss.item()
        for row, mask in zip(each.policy_logprobs_BC.grad, each.mask_BC, strict=True):
            assert row[~mask].eq(0).all()
            gradients.append(row[mask].tolist())
        for name, value in found.sums.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    return loss, gradients, sums


def test_every_objective_and_every_aggregation_is_here():
    configs = [config(*pair) for pair in PAIRS]
    assert {type(each.objective) for each in configs} == set(OBJECTIVES)
    assert {type(each.aggregation) for each in configs} == set(AGGREGATIONS)


@pytest.mark.parametrize("aggregation", AGGREGATION_SETTINGS)
def test_the_denominators(aggregation):
    settings = config("clip", aggregation).aggregation
    found = AGGREGATIONS[type(settings)].denominator(LENGTHS, MAX_NEW_TOKENS, settings)
    assert found == DENOMINATORS[aggregation]


def test_a_length_that_is_given_replaces_the_limit():
    settings = config("clip", {"kind": "fixed_length", "length": 10}).aggregation
    assert AGGREGATIONS[type(settings)].denominator(LENGTHS, MAX_NEW_TOKENS, settings) == 30.0


@pytest.mark.parametrize(("name", "aggregation"), PAIRS)
class TestLaws:
    def test_on_policy_the_gradient_is_minus_the_advantage_times_the_mask_over_the_denominator(self, name, aggregation):
        _, gradients, sums = evaluated(config(name, aggregation), batch())
        assert sums["ratio"] == 8.0
        assert sums["clipped"] == 0.0
        for length, advantage, row in zip(LENGTHS, ADVANTAGES, gradients, strict=True):
            weight = 1 / length if aggregation == "sequence_mean" else 1.0
            if name == "sequence sum":
                weight *= length  # one action: every token carries the whole completion's term
            expected = -advantage * weight / DENOMINATORS[aggregation]
            assert row == pytest.approx([expected] * length, abs=1e-12)

    @pytest.mark.parametrize("shift", [0.0, 0.1, -0.4])
    def test_any_cut_into_micro_batches_and_any_order_give_the_same(self, name, aggregation, shift):
        settings = config(name, aggregation, kl={"placement": "loss"}, entropy_coefficient=0.1)
        loss, gradients, sums = evaluated(settings, batch(shift=shift))
        for cut in ([(0,), (1,), (2,)], [(0, 1), (2,)], [(2,), (0, 1)]):
            found, rows, cut_sums = evaluated(settings, *(batch(rows, shift=shift) for rows in cut))
            order = [row for part in cut for row in part]
            assert found == pytest.approx(loss, abs=1e-12)
            assert cut_sums == pytest.approx(sums, abs=1e-12)
            for row, index in zip(rows, order, strict=True):
                assert row == pytest.approx(gradients[index], abs=1e-12)

    @pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf, 1e6])
    def test_what_stands_in_the_padding_changes_nothing(self, name, aggregation, filler):
        settings = config(name, aggregation, kl={"placement": "loss"}, entropy_coefficient=0.1)
        clean = evaluated(settings, batch(shift=0.1))
        assert evaluated(settings, batch(shift=0.1, filler=filler)) == clean
        loss, gradients, sums = evaluated(settings, batch(shift=0.1, filler=filler, width=9))
        assert loss == pytest.approx(clean[0], abs=1e-12)  # a wider sum may round otherwise
        assert gradients == [pytest.approx(row, abs=1e-12) for row in clean[1]]
        assert sums == pytest.approx(clean[2], abs=1e-12)

    @pytest.mark.parametrize("shift", [500.0, -500.0])
    def test_extreme_ratios_keep_loss_and_gradient_finite(self, name, aggregation, shift):
        settings = config(name, aggregation, kl={"placement": "loss", "estimator": "k3_importance"})
        loss, gradients, _ = evaluated(settings, batch(shift=shift))
        assert math.isfinite(loss)
        assert all(math.isfinite(value) for row in gradients for value in row)

    def test_without_an_advantage_there_is_no_gradient(self, name, aggregation):
        one = batch(shift=0.1)
        silent = MicroBatch(**{**vars(one), "advantages_BC": torch.zeros_like(one.advantages_BC)})
        loss, gradients, _ = evaluated(config(name, aggregation), silent)
        assert loss == 0.0
        assert all(value == 0.0 for row in gradients for value in row)

    def test_the_kl_and_the_entropy_are_aggregated_as_the_objective_is(self, name, aggregation):
        plain, _, _ = evaluated(config(name, aggregation), batch())
        share = {"sequence_mean": 1.0, "token_mean": 1.0, "fixed_length": 8 / 15}[aggregation]
        k3 = math.exp(0.4) - 0.4 - 1
        with_kl, _, sums = evaluated(config(name, aggregation, kl={"placement": "loss", "beta": 0.5}), batch())
        assert with_kl - plain == pytest.approx(0.5 * k3 * share, abs=1e-12)
        assert sums["kl"] == pytest.approx(8 * k3, abs=1e-12)
        with_bonus, _, _ = evaluated(config(name, aggregation, entropy_coefficient=0.5), batch())
        assert with_bonus - plain == pytest.approx(-0.5 * 0.7 * share, abs=1e-12)

    def test_a_correction_scales_the_policy_term_and_neither_kl_nor_entropy(self, name, aggregation):
        settings = config(name, aggregation, kl={"placement": "loss"}, entropy_coefficient=0.1)
        one = batch(shift=0.05)
        doubled = MicroBatch(**{**vars(batch(shift=0.05)), "correction_BC": 2 * one.correction_BC})
        plain, _, plain_sums = evaluated(settings, one)
        found, _, sums = evaluated(settings, doubled)
        assert sums["policy_loss"] == pytest.approx(2 * plain_sums["policy_loss"], abs=1e-12)
        assert found - plain == pytest.approx(plain_sums["policy_loss"], abs=1e-12)

    def test_a_kl_in_the_reward_adds_nothing_to_the_loss(self, name, aggregation):
        with_kl = config(name, aggregation, kl={"placement": "reward"})
        assert evaluated(with_kl, batch()) == evaluated(config(name, aggregation), batch())


@pytest.mark.parametrize(("name", "loss"), [("clip", 5.0 / 6), ("dual clip", 3.0 / 6)])
def test_the_dual_clip_of_the_settings_bounds_a_negative_advantage(name, loss):
    """The row of one token has advantage -0.5 and ratio 5: min gives -2.5, the bound of 3 gives -1.5."""
    found, _, sums = evaluated(config(name, "sequence_mean"), batch(rows=(1,), shift=math.log(5.0)))
    assert found == pytest.approx(loss, abs=1e-12)  # over the denominator of 3 completions
    assert sums["clipped"] == (name == "dual clip")


def test_the_largest_ratio_is_of_tokens_that_take_part():
    found = objective(batch(shift=0.1, filler=99.0), config("clip", "token_mean"), 8.0)
    assert found.largest_ratio.item() == pytest.approx(math.exp(0.1))
