"""The presets: what each is made of, what may be changed, what is refused."""

import pytest
from pydantic import ValidationError

from tasks.grpo.config import UpdateConfig
from tasks.grpo.presets import PRESETS, merged

CRITIC = {"critic": {"optimiser": {"learning_rate": 1.0}}}
NEEDED = {"cispo": {"objective": {"clip_high": 4.0}}, "ppo": CRITIC}


def config(algorithm, **changes):
    settings = {"algorithm": algorithm, "optimiser": {"learning_rate": 1.0}, **NEEDED.get(algorithm, {})}
    return UpdateConfig.model_validate({**settings, **changes})


# algorithm -> advantages, objective, aggregation, KL, filter, overlong, sampler
PARTS = {
    "grpo": ("group", "clip", "sequence_mean", "loss", "keep", "none", "current"),
    "grpo_process": ("process", "clip", "sequence_mean", "loss", "keep", "none", "current"),
    "dr_grpo": ("group", "clip", "fixed_length", "none", "keep", "none", "current"),
    "dapo": ("group", "clip", "token_mean", "none", "dynamic", "soft", "current"),
    "gspo": ("group", "sequence_clip", "sequence_mean", "none", "keep", "none", "current"),
    "gspo_token": ("group", "sequence_token_clip", "sequence_mean", "none", "keep", "none", "current"),
    "cispo": ("group", "cispo", "token_mean", "none", "keep", "none", "current"),
    "rloo": ("leave_one_out", "sequence_clip", "sequence_mean", "reward", "keep", "none", "current"),
    "reinforce_pp": ("batch", "clip", "token_mean", "reward", "keep", "none", "current"),
    "reinforce_pp_baseline": ("batch", "clip", "token_mean", "reward", "keep", "none", "current"),
    "ppo": ("gae", "clip", "token_mean", "reward", "keep", "none", "current"),
    "rft": ("correct_only", "log_likelihood", "sequence_mean", "none", "keep", "none", "initial"),
    "online_rft": ("correct_only", "log_likelihood", "sequence_mean", "none", "keep", "none", "current"),
}


def test_every_preset_is_here():
    assert set(PARTS) == set(PRESETS)


@pytest.mark.parametrize("algorithm", PRESETS)
def test_the_parts_of_a_preset(algorithm):
    found = config(algorithm)
    assert PARTS[algorithm] == (
        found.advantages.kind,
        found.objective.kind,
        found.aggregation.kind,
        found.kl.placement,
        found.group_filter.kind,
        found.overlong.kind,
        found.rollout_policy,
    )
    assert (found.critic is not None) == (algorithm == "ppo")


@pytest.mark.parametrize(
    ("algorithm", "low", "high"),
    [("grpo", 0.2, 0.2), ("dapo", 0.2, 0.28), ("gspo", 3e-4, 4e-4), ("gspo_token", 3e-4, 4e-4), ("rloo", 0.2, 0.2)],
)
def test_the_bounds_of_a_preset(algorithm, low, high):
    objective = config(algorithm).objective
    assert (objective.clip_low, objective.clip_high) == (low, high)


def test_the_other_numbers_of_the_presets():
    assert config("grpo").kl.estimator == "k3"
    assert (config("rloo").kl.estimator, config("rloo").objective.length) == ("k1", "sum")
    assert config("gspo").objective.length == "mean"
    assert config("dr_grpo").advantages.scale == "none"
    assert config("reinforce_pp").advantages.baseline == "none"
    assert config("reinforce_pp_baseline").advantages.baseline == "group_mean"
    assert (config("dapo").group_filter.max_rounds, config("dapo").overlong.cache_share) == (3, 0.2)
    assert config("cispo").objective.clip_low is None


@pytest.mark.parametrize("algorithm", PRESETS)
def test_what_is_recorded_parses_to_the_same_settings(algorithm):
    found = config(algorithm)
    assert UpdateConfig.model_validate(found.model_dump(mode="json")) == found
    assert UpdateConfig.model_validate_json(found.model_dump_json()) == found


def test_a_part_may_be_changed_or_replaced():
    changed = config("dapo", objective={"clip_high": 0.3}, aggregation="sequence_mean", group_filter={"kind": "keep"})
    assert (changed.objective.clip_low, changed.objective.clip_high) == (0.2, 0.3)
    assert (changed.aggregation.kind, changed.group_filter.kind) == ("sequence_mean", "keep")
    replaced = config("dapo", objective={"kind": "sequence_clip"})
    assert replaced.objective.clip_high == 4e-4  # of its own kind, not the preset's 0.28
    assert merged({"kl": {"placement": "none"}}, {"kl": {"placement": "loss"}}) == {"kl": {"placement": "loss"}}


@pytest.mark.parametrize(
    ("algorithm", "changes", "said"),
    [
        ("gspo", {"objective": {"dual_clip": 3.0}}, "dual_clip"),
        ("gspo", {"kl": {"beta": 0.1}}, "beta"),
        ("grpo", {"objective": {"length": "sum"}}, "length"),
        ("grpo", {"advantages": {"gamma": 0.9}}, "gamma"),
        ("grpo", {"group_filter": {"max_rounds": 2}}, "max_rounds"),
        ("grpo", {"overlong": {"weight": 2.0}}, "weight"),
        ("grpo", {"rollout_correction": {"cap": 2.0}}, "cap"),
        ("dr_grpo", {"advantages": {"ddof": 0}}, "ddof has no meaning"),
        ("grpo", CRITIC, "belong together"),
        ("ppo", {"critic": None}, "belong together"),
        ("cispo", {"objective": {"kind": "cispo", "clip_high": None}}, "clip_high"),
        ("ppo", {"group_filter": "dynamic"}, "needs advantages within groups"),
        ("grpo_process", {"kl": "reward"}, "no place for a KL in the reward"),
        ("rft", {"kl": "reward"}, "no place for a KL in the reward"),
        ("grpo", {"kl": "reward", "advantages": {"normalise": "each_source"}}, "no place for a KL in the reward"),
        ("rft", {"overlong": "soft"}, "would do nothing"),
        ("rft", {"objective": "clip"}, "rollout_policy"),
        ("rft", {"rollout_correction": "token_truncate"}, "rollout_policy"),
        ("grpo", {"kl": {"estimator": "k1"}}, "expected gradient of zero"),
        ("rloo", {"kl": {"estimator": "k3_importance"}}, "k1"),
        ("nonsense", {}, "no algorithm is called"),
    ],
)
def test_a_knob_that_is_foreign_to_the_choice_is_refused(algorithm, changes, said):
    with pytest.raises(ValidationError, match=said):
        config(algorithm, **changes)


def test_the_reference_is_needed_only_for_a_kl_in_the_loss():
    assert config("grpo").kl_in_loss
    assert not config("rloo").kl_in_loss
    assert not config("dapo").kl_in_loss
