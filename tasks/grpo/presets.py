"""The algorithms by name: the parts that each is made of, its formula, where it comes from."""

from dataclasses import dataclass
from typing import Any

TAGS = {"kl": "placement"}
"""The field that says which kind a part is; "kind" for the others."""


@dataclass(frozen=True)
class Preset:
    """One algorithm. ``parts`` are settings of the update; what they leave out has the default of its kind."""

    summary: str
    source: str
    parts: dict[str, Any]


DEFAULTS: dict[str, Any] = {
    "rollout_policy": "current",
    "advantages": {"kind": "group"},
    "objective": {"kind": "clip"},
    "aggregation": {"kind": "sequence_mean"},
    "kl": {"placement": "none"},
    "group_filter": {"kind": "keep"},
    "overlong": {"kind": "none"},
    "rollout_correction": {"kind": "none"},
    "critic": None,
}


def merged(parts: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a preset with those that are given over them.

    A part may be given as a table, or by its kind alone ("token_mean"). Of the same kind as the preset's, or without a
    kind, it changes what it names; of another kind it replaces the preset's part.
    """
    result = dict(parts)
    for name, value in given.items():
        tag = TAGS.get(name, "kind")
        if name in DEFAULTS and isinstance(value, str) and name != "rollout_policy":
            value = {tag: value}
        base = result.get(name)
        if isinstance(value, dict) and isinstance(base, dict) and value.get(tag, base.get(tag)) == base.get(tag):
            value = {**base, **value}
        result[name] = value
    return result


def _preset(summary: str, source: str, **parts: Any) -> Preset:
    return Preset(summary, source, {**DEFAULTS, **parts})


_GSPO = {"clip_low": 3e-4, "clip_high": 4e-4}

PRESETS: dict[str, Preset] = {
    "grpo": _preset(
        "group mean and std, token clip, k3 KL in the loss",
        "DeepSeekMath, arXiv:2402.03300, eq. 3 and 4, section 4.1.2",
        kl={"placement": "loss", "estimator": "k3", "beta": 0.04},
    ),
    "grpo_process": _preset(
        "step rewards normalised over the group's steps, summed from each token on",
        "DeepSeekMath, arXiv:2402.03300, section 4.1.3",
        advantages={"kind": "process"},
        kl={"placement": "loss", "estimator": "k3", "beta": 0.04},
    ),
    "dr_grpo": _preset(
        "centred rewards only, token sum over completions x max length",
        "Understanding R1-Zero-like training, arXiv:2503.20783, section 3.2",
        advantages={"kind": "group", "scale": "none"},
        aggregation={"kind": "fixed_length"},
    ),
    "dapo": _preset(
        "higher upper clip, token mean, dynamic sampling, soft overlong punishment",
        "DAPO, arXiv:2503.14476, eq. 8 to 13",
        objective={"kind": "clip", "clip_low": 0.2, "clip_high": 0.28},
        aggregation={"kind": "token_mean"},
        group_filter={"kind": "dynamic", "max_rounds": 3},
        overlong={"kind": "soft", "cache_share": 0.2, "weight": 1.0},
    ),
    "gspo": _preset(
        "one length-normalised ratio per completion",
        "GSPO, arXiv:2507.18071, eq. 5 to 7",
        objective={"kind": "sequence_clip", "length": "mean", **_GSPO},
    ),
    "gspo_token": _preset(
        "the completion's ratio as value, each token's gradient",
        "GSPO, arXiv:2507.18071, eq. 13 and 14",
        objective={"kind": "sequence_token_clip", **_GSPO},
    ),
    "cispo": _preset(
        "clipped ratio as a constant weight on A log pi; objective.clip_high must be given",
        "MiniMax-M1, arXiv:2506.13585, eq. 4 and 5",
        objective={"kind": "cispo"},
        aggregation={"kind": "token_mean"},
    ),
    "rloo": _preset(
        "leave-one-out baseline, ratio of the whole completion, KL in the reward",
        "Back to Basics, arXiv:2402.14740, section 3; Kool et al. (2019)",
        advantages={"kind": "leave_one_out"},
        objective={"kind": "sequence_clip", "length": "sum", "clip_low": 0.2, "clip_high": 0.2},
        kl={"placement": "reward", "estimator": "k1", "beta": 0.04},
    ),
    "reinforce_pp": _preset(
        "returns to go normalised over the batch, token KL in the reward",
        "REINFORCE++, arXiv:2501.03262, section 3",
        advantages={"kind": "batch", "baseline": "none"},
        aggregation={"kind": "token_mean"},
        kl={"placement": "reward", "estimator": "k1", "beta": 0.04},
    ),
    "reinforce_pp_baseline": _preset(
        "group mean subtracted first, then as reinforce_pp",
        "REINFORCE++, arXiv:2501.03262, section 3",
        advantages={"kind": "batch", "baseline": "group_mean"},
        aggregation={"kind": "token_mean"},
        kl={"placement": "reward", "estimator": "k1", "beta": 0.04},
    ),
    "ppo": _preset(
        "critic, GAE, clipped value loss, token KL in the reward",
        "PPO, arXiv:1707.06347, eq. 7 and 11; GAE, arXiv:1506.02438; InstructGPT, arXiv:2203.02155",
        advantages={"kind": "gae"},
        aggregation={"kind": "token_mean"},
        kl={"placement": "reward", "estimator": "k1", "beta": 0.04},
        critic={},
    ),
    "rft": _preset(
        "likelihood of the first policy's correct completions",
        "DeepSeekMath, arXiv:2402.03300, appendix A.1.2; RFT, arXiv:2308.01825",
        rollout_policy="initial",
        advantages={"kind": "correct_only"},
        objective={"kind": "log_likelihood"},
    ),
    "online_rft": _preset(
        "likelihood of the current policy's correct completions",
        "DeepSeekMath, arXiv:2402.03300, appendix A.1.3",
        advantages={"kind": "correct_only"},
        objective={"kind": "log_likelihood"},
    ),
}
