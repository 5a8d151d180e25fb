"""The same steps by TRL's GRPOTrainer, one at a time on request.

    python -m benchmarks.iteration_theirs START FOLDER     (started by benchmarks.iteration)

The quick start's first policy, prompts in the same order, group size, sampling, reward, KL and optimiser; a step is one
generation of 512 completions and 8 updates of 128 (mu = 2). No checkpoint, no log, no tracking.
"""

import json
import sys
import time
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.iteration_ours import MOST_STEPS, recipe
from flows.config import PipelineConfig
from flows.recipes import load_recipe
from tasks.curriculum.ingest import ingest
from tasks.curriculum.selection import select
from tasks.curriculum.sources import load_prompts
from tasks.policy.loading import load_model, load_tokenizer
from tasks.rollout.prompting import encode_prompt
from tasks.values.seeds import derive_seed
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.verdict import ScoreItem


def prompts_by_step(config: PipelineConfig, tokenizer: Any, num_steps: int) -> list[dict[str, str]]:
    """What our loop selects in its first steps: prompt and answer, the steps one after another."""
    source = load_prompts(config.prompts.source, seed=derive_seed(config.seed, "prompts"))
    rows, _ = ingest(
        source.prompts,
        config.prompts.format,
        partial(encode_prompt, tokenizer),
        num_heldout=config.prompts.num_heldout,
        max_prompt_tokens=config.prompts.max_prompt_tokens,
    )
    wanted, seed = config.rollout.prompts_per_step, derive_seed(config.seed, "selection")
    chosen = [row for step in range(num_steps) for row in select(rows, num_prompts=wanted, seed=seed, step_index=step)]
    for row in chosen[:3]:
        assert tokenizer(row["prompt"])["input_ids"] == list(row["prompt_token_ids"]), row
    return [{"prompt": row["prompt"], "answer": row["answer"]} for row in chosen]


class OnRequest(TrainerCallback):
    """Waits for a line before each generation, and prints the seconds until the last update on its samples."""

    def __init__(self, updates_per_step: int) -> None:
        self._updates_per_step = updates_per_step
        self._began = 0.0
        self.lengths: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._updates_per_step == 0:
            print("ready", flush=True)
            if not sys.stdin.readline():
                sys.exit(0)
            self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._updates_per_step == 0:
            seconds = time.perf_counter() - self._began
            print(json.dumps({"seconds": seconds, "tokens": sum(self.lengths) / len(self.lengths)}), flush=True)
            self.lengths.clear()


def trainer(config: PipelineConfig, start: str, output: str) -> GRPOTrainer:
    """TRL's trainer with the recipe's settings under TRL's names."""
    update, sampling = config.update, config.rollout.sampling
    size = config.rollout.prompts_per_step * config.rollout.group_size
    assert update.minibatch_completions is not None
    minibatches = size // update.minibatch_completions
    tokenizer = load_tokenizer(start)
    on_request = OnRequest(minibatches * update.num_epochs)
    verifier = config.scoring.verifiers[0]

    def reward(prompts: list[str], completions: list[str], answer: list[str], completion_ids: Any, **_: Any) -> Any:
        on_request.lengths += [len(ids) for ids in completion_ids]
        items = zip(prompts, answer, completions, strict=True)
        return [VERIFIERS[type(verifier)](verifier, ScoreItem(*item, {})).reward for item in items]

    settings = GRPOConfig(
        output_dir=output,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=update.minibatch_completions,
        steps_per_generation=minibatches,
        num_iterations=update.num_epochs,
        num_generations=config.rollout.group_size,
        max_completion_length=sampling.max_new_tokens,
        temperature=sampling.temperature,
        beta=update.kl.beta,
        loss_type="grpo",
        learning_rate=update.optimiser.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=update.optimiser.num_warmup_updates,
        shuffle_dataset=False,
        max_steps=MOST_STEPS * minibatches * update.num_epochs,
        seed=1,
    )
    return GRPOTrainer(
        model=load_model(start, device="cpu"),
        reward_funcs=reward,
        args=settings,
        train_dataset=Dataset.from_list(prompts_by_step(config, tokenizer, MOST_STEPS)),
        processing_class=tokenizer,
        callbacks=[on_request],
    )


def main(start: str, folder: str) -> None:
    config = load_recipe("quickstart", recipe("quickstart", start))
    torch.set_num_threads(config.machine.num_threads or 1)
    trainer(config, start, folder).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
