"""What is compared: one batch of completions with rewards, and per algorithm the settings that mean the same to TRL."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from trl import GRPOTrainer, RLOOTrainer

from tasks.grpo.frozen import logprobs_by_row
from tasks.policy.characters import EOS, VOCABULARY, build_tokenizer

BETA = 0.1
TEMPERATURE = 0.8
GROUP = 4
MAX_NEW_TOKENS = 12
PROMPTS = ["1+1=", "12*34-5=", "7="]
LENGTHS = [4, 7, 2, 5, 9, 3, 12, 1, 6, 11, 2, 8]
TRUNCATED = {1, 6, 10}
"""Completions without an <eos>; the others end in one, and have one in the middle when they are long."""
REWARDS = [0.2, 0.0, 0.3, 1.0, 1.0, 0.0, 0.0, 0.8, 0.5, 0.5, 0.5, 0.5]
"""The last group has no signal: it stays in the denominator, and learns from the KL alone.

The values are such that no case's loss is near 0. A loss is a sum of terms of both signs, rounded to about 4e-8 whatever
its value (advantages and old log-probabilities are float32 on both sides, also with float64 weights): a relative
difference to a loss of 0.001 would measure that rounding."""


@dataclass(frozen=True)
class Case:
    """``ours`` are settings of the update over those of the preset; ``peer`` are TRL's. ``is_masked``: TRL's reward of a
    truncated completion is None, so that it leaves the group's statistics there too."""

    ours: dict[str, Any]
    peer: dict[str, Any]
    trainer: type = GRPOTrainer
    is_masked: bool = False


@dataclass(frozen=True)
class Mistake:
    """Settings of the same case that mean something else."""

    case: str
    ours: dict[str, Any] = field(default_factory=dict)


# TRL divides by std + 1e-4 (ddof 1, as ours).
STD = {"std_eps": 1e-4}
KL = {"placement": "loss", "estimator": "k3", "beta": BETA}
DAPO = {"algorithm": "dapo", "overlong": "none", "group_filter": "keep", "advantages": STD}
GSPO = {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.0}

CASES = {
    # TRL weights k3 by the ratio unless use_bias_correction_kl is off.
    "grpo": Case(
        {"algorithm": "grpo", "kl": KL, "advantages": STD},
        {"loss_type": "grpo", "beta": BETA, "use_bias_correction_kl": False},
    ),
    # TRL's default is our k3_importance.
    "grpo, unbiased KL": Case(
        {"algorithm": "grpo", "kl": {**KL, "estimator": "k3_importance"}, "advantages": STD},
        {"loss_type": "grpo", "beta": BETA},
    ),
    # TRL's delta bounds the ratio before the min. From 1 + epsilon_high on that is our dual_clip = delta: where A < 0 the
    # same bound, where A > 0 the upper clip is tighter. Below 1 + epsilon_high the two differ.
    "grpo, two-sided clip": Case(
        {"algorithm": "grpo", "kl": "none", "advantages": STD, "objective": {"dual_clip": 1.3}},
        {"loss_type": "grpo", "beta": 0.0, "delta": 1.3},
    ),
    # TRL's denominator is completions x max_completion_length: our fixed_length with max_new_tokens.
    "dr_grpo": Case({"algorithm": "dr_grpo"}, {"loss_type": "dr_grpo", "beta": 0.0, "scale_rewards": "none"}),
    # TRL has neither the filter nor, in the loss, the overlong punishment.
    "dapo": Case(DAPO, {"loss_type": "dapo", "beta": 0.0, "epsilon_high": 0.28}),
    # TRL leaves truncated completions in the group's statistics unless their reward is None.
    "dapo, truncated masked": Case(
        {**DAPO, "truncated": "mask"},
        {"loss_type": "dapo", "beta": 0.0, "epsilon_high": 0.28, "mask_truncated_completions": True},
        is_masked=True,
    ),
    "gspo": Case({"algorithm": "gspo", "advantages": STD}, {**GSPO, "epsilon": 3e-4, "epsilon_high": 4e-4}),
    # The paper's bounds clip all that has moved the wrong way; with these a completion that has moved a little is not.
    "gspo, wide bounds": Case(
        {"algorithm": "gspo", "advantages": STD, "objective": {"clip_low": 0.18, "clip_high": 0.03}},
        {**GSPO, "epsilon": 0.18, "epsilon_high": 0.03},
    ),
    # TRL's bound of the weight is epsilon_high itself: clip_high = epsilon_high - 1.
    "cispo": Case(
        {"algorithm": "cispo", "objective": {"clip_high": 0.1}, "advantages": STD},
        {"loss_type": "cispo", "beta": 0.0, "epsilon_high": 1.1},
    ),
    # The KL (k1, summed over the completion) stands in the reward on both sides.
    "rloo": Case({"algorithm": "rloo", "kl": {"beta": BETA}}, {"beta": BETA}, RLOOTrainer),
}

MISTAKES = {
    "epsilon of the std": Mistake("grpo", {"advantages": {"std_eps": 1e-2}}),
    "ddof": Mistake("grpo", {"advantages": {**STD, "ddof": 0}}),
    "plain KL": Mistake("grpo, unbiased KL", {"kl": KL}),
    "KL left out": Mistake("grpo", {"kl": "none"}),
    "no second bound": Mistake("grpo, two-sided clip", {"objective": {"dual_clip": None}}),
    "denominator by completion": Mistake("dr_grpo", {"aggregation": "sequence_mean"}),
    "denominator by token": Mistake("gspo, wide bounds", {"aggregation": "token_mean"}),
    "denominator by length": Mistake("dapo", {"aggregation": "sequence_mean"}),
    "upper clip": Mistake("dapo", {"objective": {"clip_high": 0.2}}),
    "clip sides swapped": Mistake("dapo", {"objective": {"clip_low": 0.28, "clip_high": 0.2}}),
    "truncated kept": Mistake("dapo, truncated masked", {"truncated": "keep"}),
    "ratio by token": Mistake(
        "gspo, wide bounds", {"objective": {"kind": "clip", "clip_low": 0.18, "clip_high": 0.03}}
    ),
    "bound of the weight": Mistake("cispo", {"objective": {"clip_high": 1.1}}),
    "mean ratio": Mistake("rloo", {"objective": {"length": "mean"}}),
    "KL estimator in the reward": Mistake("rloo", {"kl": {"estimator": "k3", "beta": BETA}}),
    "group mean as baseline": Mistake("rloo", {"advantages": {"kind": "group", "scale": "none"}}),
}


def completion_rows(model):
    """Completion rows whose old log-probabilities are the model's, moved by up to 0.5 nats: each token, and every other
    completion as a whole the other way, so that both clips take some tokens and some completions."""
    tokenizer, eos = build_tokenizer(64), VOCABULARY.index(EOS)
    rows = []
    for index, length in enumerate(LENGTHS):
        is_truncated = index in TRUNCATED
        ids = [(index * 7 + position * 3) % 25 + 7 for position in range(length)]
        if length > 8:
            ids[4] = eos
        rows.append(
            {
                "group_id": f"g{index // GROUP}",
                "prompt_id": "p",
                "sample_index": index % GROUP,
                "prompt_token_ids": tokenizer(PROMPTS[index // GROUP])["input_ids"],
                "completion_token_ids": ids if is_truncated else [*ids[:-1], eos],
                "sampler_logprobs": None,
                "finish_reason": "length" if is_truncated else "stop",
                "is_truncated": is_truncated,
                "temperature": TEMPERATURE,
                "policy_digest": "d",
            }
        )
    for index, logprobs_T in logprobs_by_row(model, rows, range(len(rows)), 10_000, "packed").items():
        shift = 0.2 if index % 2 else -0.2
        moved = [shift + 0.3 * math.sin(1.7 * index + position) for position in range(len(logprobs_T))]
        rows[index]["sampler_logprobs"] = (logprobs_T + torch.tensor(moved)).tolist()
    return rows


def reward_rows(completions):
    """Rewards rows with one source."""
    return [
        {
            "group_id": row["group_id"],
            "sample_index": row["sample_index"],
            "reward": reward,
            "is_correct": reward >= 1,
            "exact_reward": reward,
            "step_rewards": None,
            "step_ends": None,
        }
        for row, reward in zip(completions, REWARDS, strict=True)
    ]
