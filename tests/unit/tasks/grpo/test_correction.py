"""Rollout correction: raw and used weights, who takes part."""

import math

import pytest
import torch

from tasks.grpo.components import Masking, NoCorrection, Truncation
from tasks.grpo.correction import CORRECTIONS

RAW = [0.606531, 12.182494, 0.818731]
LOG_WEIGHTS = torch.tensor([-0.5, 2.5, -0.2], dtype=torch.float64)
KNOWN = torch.ones(3, dtype=torch.bool)


def corrected(config, log_weights=LOG_WEIGHTS, known=KNOWN):
    return CORRECTIONS[type(config)](log_weights, known, config)


def test_truncation_uses_the_capped_weight_and_reports_the_raw_one():
    found = corrected(Truncation(kind="token_truncate", cap=5.0))
    assert found.raw_T.tolist() == pytest.approx(RAW, abs=1e-6)
    assert found.raw_T.mean().item() == pytest.approx(4.535919, abs=1e-6)
    assert found.factor_T.tolist() == pytest.approx([RAW[0], 5.0, RAW[2]], abs=1e-6)
    assert found.factor_T.mean().item() == pytest.approx(2.141754, abs=1e-6)
    assert found.takes_part_T.all()


def test_a_completions_weight_is_the_product_of_its_tokens():
    found = corrected(Truncation(kind="sequence_truncate", cap=5.0))
    assert found.raw_T.tolist() == pytest.approx([math.exp(1.8)] * 3, abs=1e-9)
    assert found.factor_T.tolist() == [5.0] * 3
    assert corrected(Truncation(kind="sequence_truncate", cap=9.0)).factor_T.tolist() == found.raw_T.tolist()


def test_masking_takes_tokens_out_on_both_sides_and_weights_the_others():
    found = corrected(Masking(kind="token_mask", low=0.7, high=5.0))
    assert found.takes_part_T.tolist() == [False, False, True]
    assert found.factor_T[2].item() == pytest.approx(RAW[2], abs=1e-6)


def test_masking_by_completion_takes_all_of_it_or_nothing():
    assert not corrected(Masking(kind="sequence_mask", low=0.5, high=5.0)).takes_part_T.any()
    assert corrected(Masking(kind="sequence_mask", low=0.5, high=7.0)).takes_part_T.all()


@pytest.mark.parametrize(
    "config",
    [
        Truncation(kind="token_truncate", cap=5.0),
        Truncation(kind="sequence_truncate", cap=5.0),
        Masking(kind="token_mask", high=5.0),
        Masking(kind="sequence_mask", high=5.0),
    ],
)
def test_a_token_of_unknown_engine_probability_is_neutral(config):
    """Trainer [-0.5, -0.001], engine [-0.6, NaN]: ratios [1.105171, 1.0]."""
    trainer, engine = torch.tensor([-0.5, -0.001]), torch.tensor([-0.6, math.nan])
    found = corrected(config, trainer - engine, torch.isfinite(engine))
    expected = [1.105171, 1.105171] if "sequence" in config.kind else [1.105171, 1.0]
    assert found.factor_T.tolist() == pytest.approx(expected, abs=1e-6)
    assert found.takes_part_T.all()


@pytest.mark.parametrize("kind", ["token_truncate", "sequence_truncate"])
@pytest.mark.parametrize("log_weight", [1e4, -1e4])
def test_extreme_weights_stay_finite(kind, log_weight):
    found = corrected(Truncation(kind=kind), torch.full((3,), log_weight), KNOWN)
    assert bool(torch.isfinite(found.factor_T).all())
    assert bool(torch.isfinite(found.raw_T).all())


def test_without_a_correction_every_factor_is_one():
    found = corrected(NoCorrection(kind="none"))
    assert found.factor_T.tolist() == [1.0] * 3
    assert found.takes_part_T.all()
