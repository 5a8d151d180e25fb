"""One update by both: ours from rows to AdamW's first moment, TRL's from its scoring of completions to ``backward``."""

from dataclasses import dataclass

import torch
from datasets import Dataset
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from tasks.grpo.config import UpdateConfig
from tasks.grpo.samples import Models, build_samples
from tasks.grpo.trainer import PolicyTrainer
from tasks.policy.characters import build_tokenizer
from tests.conftest import make_llama
from tests.parity.cases import (
    GROUP,
    LENGTHS,
    MAX_NEW_TOKENS,
    PROMPTS,
    REWARDS,
    TEMPERATURE,
    completion_rows,
    reward_rows,
)

CONFIGS = {GRPOTrainer: GRPOConfig, RLOOTrainer: RLOOConfig}


@dataclass(frozen=True)
class Found:
    """A loss, its gradient with respect to all weights put end to end, and the advantage of each completion."""

    loss: float
    gradient: Tensor
    advantages_B: Tensor
    metrics: dict


def policy(folder):
    return type(make_llama()).from_pretrained(folder, dtype=torch.float32)


def reference():
    return make_llama(seed=5, num_hidden_layers=1)


def ours(folder, settings):
    """``build_samples`` and ``PolicyTrainer``; the gradient is read off the first moment after one update."""
    optimiser = {"learning_rate": 1e-3, "max_grad_norm": 1e9}
    config = UpdateConfig.model_validate({"optimiser": optimiser, **settings})
    model = policy(folder).eval()
    completions = completion_rows(model)
    samples, _ = build_samples(
        completions,
        reward_rows(completions),
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
    advantages = torch.tensor([row["advantage"] for row in samples], dtype=torch.float64)
    return Found(metrics["loss"], gradient, advantages, metrics)


def theirs(folder, case, output):
    """TRL's trainer. It tokenizes, scores, pads, masks and asks its reference; of generation only the sampling is given,
    and with it the log-probabilities before the update."""
    completions = completion_rows(policy(folder).eval())
    trainer = _trainer(folder, case, output, completions)
    _give_samples(trainer, completions)
    inputs = trainer._generate_and_score_completions(
        [{"prompt": PROMPTS[index // GROUP]} for index in range(len(LENGTHS))]
    )
    trainer.current_gradient_accumulation_steps = 1  # set by the training loop otherwise
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    gradient = torch.cat([each.grad.flatten() for each in trainer.model.parameters()])
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    return Found(loss.item(), gradient, inputs["advantages"].double(), metrics)


def _trainer(folder, case, output, completions):
    config = CONFIGS[case.trainer](
        output_dir=str(output),
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=len(LENGTHS),
        num_generations=GROUP,
        num_iterations=2,  # with one, TRL takes the policy for the sampler and every ratio is 1
        max_completion_length=MAX_NEW_TOKENS,
        temperature=TEMPERATURE,
        **case.peer,
    )
    is_unscored = [case.is_masked and row["is_truncated"] for row in completions]
    rewards = [None if unscored else reward for unscored, reward in zip(is_unscored, REWARDS, strict=True)]
    trainer = case.trainer(
        model=policy(folder),
        reward_funcs=lambda completions, **_: rewards,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=build_tokenizer(64),
    )
    if trainer.ref_model is not None:
        trainer.ref_model.load_state_dict(reference().state_dict())
    trainer.model.train()  # no dropout in it; TRL's denominators look at the mode
    return trainer


def _give_samples(trainer, completions):
    """The completions instead of those of ``generate``, and what TRL would find for them before the update."""
    ids = [row["completion_token_ids"] for row in completions]
    old = [torch.tensor(row["sampler_logprobs"]) for row in completions]
    old_BC = torch.nn.utils.rnn.pad_sequence(old, batch_first=True)
    compute = trainer._get_per_token_logps_and_entropies

    def logprobs(model, *args, **kwargs):
        is_before = model is trainer.model and not torch.is_grad_enabled()
        return (old_BC, None, None) if is_before else compute(model, *args, **kwargs)

    trainer._generate_single_turn = lambda *_: (ids, None) if isinstance(trainer, GRPOTrainer) else ids
    trainer._get_per_token_logps_and_entropies = logprobs
