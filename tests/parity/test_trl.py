"""The same loss and gradient as TRL 1.16's own trainers, on the same model, tokens, rewards and old log-probabilities.

TRL's side is its real ``_compute_loss``, ours the real ``PolicyTrainer`` on rows made by ``build_samples``. Where the
conventions differ, the setting that makes them equal stands in the case:

- standard deviation of a group: both ddof 1; TRL adds 1e-4, so std_eps = 1e-4
- CISPO: TRL bounds the weight by epsilon_high itself, we by 1 + clip_high
- two-sided clip: TRL's delta bounds the ratio wherever it is above (for A > 0 the clip is tighter anyway), our dual_clip
  is the same bound for A < 0
- KL in the loss: TRL weights k3 by the ratio unless use_bias_correction_kl is off, which is our "k3_importance"
- RLOO: the KL stands in the reward on both sides, estimated by k1 over the whole completion
"""

import math

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from tasks.grpo.config import UpdateConfig
from tasks.grpo.frozen import logprobs_by_row
from tasks.grpo.samples import Models, build_samples
from tasks.grpo.trainer import PolicyTrainer
from tasks.policy.characters import build_tokenizer
from tests.conftest import make_llama

RELATIVE = 1e-5
BETA = 0.1
MAX_NEW_TOKENS = 12
LENGTHS = [4, 7, 2, 5, 9, 3, 12, 1]
REWARDS = [1.0, 0.0, 0.3, 0.7, 1.0, 0.0, 0.0, 0.2]
PROMPTS = [[1, 5, 6], [1, 9, 8, 7, 4]]
GROUP = 4

KL = {"placement": "loss", "estimator": "k3", "beta": BETA}
STD = {"std_eps": 1e-4}
# case -> (our update, TRL's trainer, TRL's settings)
CASES = {
    "grpo": (
        {"algorithm": "grpo", "kl": KL, "advantages": STD},
        GRPOTrainer,
        {"loss_type": "grpo", "beta": BETA, "use_bias_correction_kl": False},
    ),
    "grpo, unbiased KL": (
        {"algorithm": "grpo", "kl": {**KL, "estimator": "k3_importance"}, "advantages": STD},
        GRPOTrainer,
        {"loss_type": "grpo", "beta": BETA, "use_bias_correction_kl": True},
    ),
    "grpo, two-sided clip": (
        {"algorithm": "grpo", "kl": "none", "advantages": STD, "objective": {"dual_clip": 1.5}},
        GRPOTrainer,
        {"loss_type": "grpo", "beta": 0.0, "delta": 1.5},
    ),
    "dr_grpo": (
        {"algorithm": "dr_grpo"},
        GRPOTrainer,
        {"loss_type": "dr_grpo", "beta": 0.0, "scale_rewards": "none"},
    ),
    "dapo": (
        {"algorithm": "dapo", "overlong": "none", "group_filter": "keep", "advantages": STD},
        GRPOTrainer,
        {"loss_type": "dapo", "beta": 0.0, "epsilon_high": 0.28},
    ),
    "gspo": (
        {"algorithm": "gspo", "advantages": STD},
        GRPOTrainer,
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "beta": 0.0,
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
        },
    ),
    "gspo, wide bounds": (
        {"algorithm": "gspo", "advantages": STD, "objective": {"clip_low": 0.05, "clip_high": 0.05}},
        GRPOTrainer,
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.0, "epsilon": 0.05},
    ),
    "cispo": (
        {"algorithm": "cispo", "objective": {"clip_high": 0.1}, "advantages": STD},
        GRPOTrainer,
        {"loss_type": "cispo", "beta": 0.0, "epsilon_high": 1.1},
    ),
    "rloo": ({"algorithm": "rloo", "kl": {"beta": BETA}}, RLOOTrainer, {"beta": BETA}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The policy's weights as a folder: TRL loads its reference from where the policy came from."""
    path = tmp_path_factory.mktemp("policy")
    make_llama(num_hidden_layers=1).save_pretrained(path)
    return path


def policy(folder):
    return type(make_llama()).from_pretrained(folder, dtype=torch.float32).eval()


def reference():
    return make_llama(seed=5, num_hidden_layers=1)


def rollouts(model):
    """Completion rows whose old log-probabilities are the model's, moved by up to 0.5 nats: some ratios are clipped."""
    rows = []
    for index, length in enumerate(LENGTHS):
        ids = [(index * 7 + position * 3) % 29 + 3 for position in range(length)]
        rows.append(
            {
                "group_id": f"g{index // GROUP}",
                "prompt_id": "p",
                "sample_index": index % GROUP,
                "prompt_token_ids": PROMPTS[index // GROUP],
                "completion_token_ids": ids,
                "sampler_logprobs": None,
                "finish_reason": "stop",
                "is_truncated": False,
                "temperature": 1.0,
                "policy_digest": "d",
            }
        )
    for index, logprobs_T in logprobs_by_row(model, rows, range(len(rows)), 10_000).items():
        moved = [0.5 * math.sin(1.7 * index + position) for position in range(len(logprobs_T))]
        rows[index]["sampler_logprobs"] = (logprobs_T + torch.tensor(moved)).tolist()
    return rows


def rewards(rows):
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
        for row, reward in zip(rows, REWARDS, strict=True)
    ]


def ours(folder, settings):
    """Samples, loss and gradient (read off AdamW's first moment) of our trainer."""
    optimiser = {"learning_rate": 1e-3, "max_grad_norm": 1e9}
    config = UpdateConfig.model_validate({"optimiser": optimiser, **settings})
    model = policy(folder)
    rows = rollouts(model)
    samples, _ = build_samples(
        rows,
        rewards(rows),
        config,
        weights={"exact": 1.0},
        max_new_tokens=MAX_NEW_TOKENS,
        models=Models(policy=model, reference=reference()),
    )
    trainer = PolicyTrainer(model, config)
    metrics = trainer.update(
        samples,
        reference=reference() if config.kl_in_loss else None,
        max_new_tokens=MAX_NEW_TOKENS,
        seed=1,
        on_progress=lambda done, total: None,
    )
    state = trainer.optimiser._adamw.state
    gradient = torch.cat([state[each]["exp_avg"].flatten() / (1 - 0.9) for each in model.parameters()])
    return samples, metrics, gradient


def peer(folder, trainer_class, settings, output):
    """TRL's trainer on the same weights."""
    config_class = {GRPOTrainer: GRPOConfig, RLOOTrainer: RLOOConfig}[trainer_class]
    config = config_class(
        output_dir=str(output),
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=len(LENGTHS),
        num_generations=GROUP,
        max_completion_length=MAX_NEW_TOKENS,
        **settings,
    )
    trainer = trainer_class(
        model=policy(folder),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["1+1="] * 8}),
        processing_class=build_tokenizer(64),
    )
    trainer.model.eval()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def padded(values, width, *, left=False):
    row = [*values, *[0] * (width - len(values))]
    return row[len(values) :] + row[: len(values)] if left else row


def inputs_of(samples):
    """What TRL's loss reads: prompts padded on the left, completions on the right."""
    prompt_width = max(len(row["prompt_token_ids"]) for row in samples)
    width = max(LENGTHS)

    def column(name):
        return torch.tensor([padded(row[name], width) for row in samples])

    masks = [[1] * len(row["completion_token_ids"]) for row in samples]
    by_row = logprobs_by_row(reference(), samples, range(len(samples)), 10_000)
    old = column("sampler_logprobs")
    return {
        "prompt_ids": torch.tensor([padded(row["prompt_token_ids"], prompt_width, left=True) for row in samples]),
        "prompt_mask": torch.tensor(
            [padded([1] * len(row["prompt_token_ids"]), prompt_width, left=True) for row in samples]
        ),
        "completion_ids": column("completion_token_ids"),
        "completion_mask": torch.tensor([padded(mask, width) for mask in masks]),
        "advantages": torch.tensor([row["advantage"] for row in samples]),
        "old_per_token_logps": old,
        "old_logps": old.sum(dim=1),
        "ref_per_token_logps": torch.tensor([padded(by_row[index].tolist(), width) for index in range(len(samples))]),
        "num_items_in_batch": torch.tensor(sum(LENGTHS)),
    }


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_trl(case, folder, tmp_path, differences):
    settings, trainer_class, peer_settings = CASES[case]
    samples, metrics, gradient = ours(folder, settings)
    trainer = peer(folder, trainer_class, peer_settings, tmp_path)
    loss = trainer._compute_loss(trainer.model, inputs_of(samples))
    loss.backward()
    expected = torch.cat([each.grad.flatten() for each in trainer.model.parameters()])
    loss_difference = abs(metrics["loss"] - loss.item()) / abs(loss.item())
    gradient_difference = float((gradient - expected).norm() / expected.norm())
    differences[case] = (loss_difference, gradient_difference)
    assert loss_difference < RELATIVE
    assert gradient_difference < RELATIVE
    assert float(expected.norm()) > 1e-3
    assert case == "cispo" or 0 < metrics["clip_fraction"] < 1


@pytest.mark.parametrize("case", ["grpo", "dr_grpo"])
def test_group_advantages_are_those_of_trl(case, folder):
    """TRL 1.16, grpo_trainer.py: (rewards - mean) / (std + 1e-4) with torch's std (ddof 1), or centred only."""
    samples, _, _ = ours(folder, CASES[case][0])
    grouped = torch.tensor(REWARDS, dtype=torch.float64).view(-1, GROUP)
    expected = grouped - grouped.mean(dim=1, keepdim=True)
    if case == "grpo":
        expected = expected / (grouped.std(dim=1, keepdim=True) + 1e-4)
    assert [row["advantage"] for row in samples] == pytest.approx(expected.flatten().tolist(), rel=1e-9)


def test_leave_one_out_advantages_are_those_of_trl(folder):
    """TRL 1.16, rloo_trainer.py: r - beta * sum of (old - reference), against the mean of the group's others."""
    samples, _, _ = ours(folder, CASES["rloo"][0])
    by_row = logprobs_by_row(reference(), samples, range(len(samples)), 10_000)
    penalised = torch.tensor(
        [
            reward - BETA * (sum(row["sampler_logprobs"]) - float(by_row[index].sum()))
            for index, (row, reward) in enumerate(zip(samples, REWARDS, strict=True))
        ]
    ).view(-1, GROUP)
    others = (penalised.sum(dim=1, keepdim=True) - penalised) / (GROUP - 1)
    assert [row["advantage"] for row in samples] == pytest.approx((penalised - others).flatten().tolist(), abs=1e-5)
