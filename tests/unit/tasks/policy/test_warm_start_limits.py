"""What a warm start refuses."""

import pytest
from pydantic import ValidationError

from tasks.policy.config import ScratchPolicy, WarmStartConfig
from tasks.policy.scratch import make_scratch


def test_demonstrations_longer_than_the_context_are_refused_before_any_update():
    config = ScratchPolicy(
        kind="scratch",
        hidden_size=8,
        num_heads=1,
        num_layers=1,
        max_positions=32,
        warm_start=WarmStartConfig(num_updates=1),
    )
    updates = []
    with pytest.raises(ValueError, match=r"demonstration has \d+ tokens, policy.max_positions is 32"):
        make_scratch(config, seed=1, on_progress=lambda done, total: updates.append(done))
    assert updates == []


def test_term_bounds_in_the_wrong_order_are_refused_when_parsed():
    with pytest.raises(ValidationError, match="max_terms 3 is below min_terms 5"):
        WarmStartConfig(min_terms=5, max_terms=3)
