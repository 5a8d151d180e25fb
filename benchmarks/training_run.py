"""One run of the algorithm benchmark: a fixed number of completions from a given warm start, in this process."""

import copy
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks.variants import NUM_STEPS, STEPS_PER_ITERATION, Variant, recipe
from flows.config import PipelineConfig
from tasks.curriculum.ingest import ingest
from tasks.curriculum.selection import select, select_heldout, select_replacements
from tasks.curriculum.sources import load_prompts
from tasks.grpo.critic import Critic, CriticTrainer
from tasks.grpo.samples import Models, build_samples
from tasks.grpo.trainer import PolicyTrainer
from tasks.policy.loading import load_model, load_tokenizer
from tasks.rollout.engine import PolicyWeights
from tasks.rollout.engines import make_engine
from tasks.rollout.prompting import encode_prompt, eos_token_ids, prefix_lengths
from tasks.rollout.rollouts import completion_rows, requests_for
from tasks.values.seeds import derive_seed
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.totals import items_of, reward_rows

Row = dict[str, Any]


def silent(done: int, total: int) -> None:
    """No progress bar: runs go on side by side."""


class TrainingRun:
    """The policy of one variant, its reference, and what it has cost so far."""

    def __init__(self, variant: Variant, seed: int, start: Path) -> None:
        self.variant, self.seed = variant, seed
        self.config: PipelineConfig = recipe(variant, seed)
        self.tokenizer = load_tokenizer(start)
        self.policy = load_model(start, device="cpu")
        self.first = copy.deepcopy(self.policy)
        self.reference = self.first
        self.trainer = PolicyTrainer(self.policy, self.config.update)
        self.critic: CriticTrainer | None = None
        if self.config.update.critic is not None:
            critic = Critic.from_policy(start, device="cpu", seed=derive_seed(seed, "critic"))
            self.critic = CriticTrainer(critic, self.config.update.critic)
        prompts = load_prompts(self.config.prompts.source, seed=derive_seed(seed, "prompts"))
        self.prompts, _ = ingest(
            prompts.prompts,
            self.config.prompts.format,
            partial(encode_prompt, self.tokenizer),
            num_heldout=self.config.prompts.num_heldout,
            max_prompt_tokens=self.config.prompts.max_prompt_tokens,
        )
        self.num_completions = self.num_tokens = self.num_rounds = 0

    def scored(
        self, model: PreTrainedModel, selection: Sequence[Row], num_samples: int, seed: int
    ) -> tuple[list[Row], list[Row]]:
        """Completions of ``model`` and their rewards."""
        rollout = self.config.rollout
        requests = requests_for(selection, num_samples=num_samples, seed_parts=(seed,))
        result = make_engine(rollout.engine, PolicyWeights(model, self.tokenizer)).generate(
            requests, rollout.sampling, silent
        )
        eos_ids = eos_token_ids(None, self.tokenizer)
        completions, _ = completion_rows(
            requests,
            result,
            tokenizer=self.tokenizer,
            eos_ids=eos_ids,
            temperature=rollout.sampling.temperature,
            policy_digest="",
        )
        scoring = self.config.scoring
        verdicts = [
            [VERIFIERS[type(verifier)](verifier, item) for verifier in scoring.verifiers]
            for item in items_of(completions, selection)
        ]
        lengths = prefix_lengths(self.tokenizer, eos_ids)
        rewards, _ = reward_rows(completions, verdicts, None, scoring, lengths)
        return completions, rewards

    def accuracy_by_prompt(self) -> dict[str, float]:
        """Held-out prompt -> share of its sampled completions that are correct; the same seeds in every evaluation."""
        seed = derive_seed(self.seed, "evaluation")
        _, rewards = self.scored(self.policy, select_heldout(self.prompts), self.config.evaluation.num_samples, seed)
        by_prompt: dict[str, list[bool]] = {}
        for row in rewards:
            by_prompt.setdefault(row["prompt_id"], []).append(bool(row["is_correct"]))
        return {prompt: sum(values) / len(values) for prompt, values in sorted(by_prompt.items())}

    def step(self, number: int) -> None:
        """One step as the pipeline does it: rounds of samples, then critic and policy."""
        rows = self._rounds(number)
        seed = derive_seed(self.seed, number, "update")
        self.trainer.update(
            rows,
            reference=self.reference if self.config.update.kl_in_loss else None,
            max_new_tokens=self.config.rollout.sampling.max_new_tokens,
            seed=seed,
            on_progress=silent,
        )
        if self.critic is not None:
            self.critic.train(rows, seed=seed, on_progress=silent)
        if self.variant.is_iterative and (number + 1) % STEPS_PER_ITERATION == 0:
            self.reference = copy.deepcopy(self.policy)

    def _rounds(self, number: int) -> list[Row]:
        wanted, seed = self.config.rollout.prompts_per_step, derive_seed(self.seed, "selection")
        selection = select(self.prompts, num_prompts=wanted, seed=seed, step_index=number)
        group_filter = self.config.update.group_filter
        max_rounds = group_filter.max_rounds if group_filter.kind == "dynamic" else 0
        rows: list[Row] = []
        taken: list[Row] = []
        found = 0
        for round_number in range(max_rounds + 1):
            if round_number:
                selection = select_replacements(
                    self.prompts,
                    taken,
                    num_prompts=wanted - found,
                    seed=seed,
                    step_index=number,
                    round_number=round_number,
                )
            if not selection:
                break
            taken += selection
            samples, metrics = self._samples(selection, derive_seed(self.seed, number, "rollouts"))
            rows += samples
            found += int(metrics["num_signal_groups"])
            if found >= wanted:
                break
        return rows

    def _samples(self, selection: Sequence[Row], seed: int) -> tuple[list[Row], dict[str, float]]:
        update, rollout = self.config.update, self.config.rollout
        sampler = self.first if update.rollout_policy == "initial" else self.policy
        completions, rewards = self.scored(sampler, selection, rollout.group_size, seed)
        self.num_completions += len(completions)
        self.num_rounds += 1
        self.num_tokens += sum(len(row["completion_token_ids"]) for row in completions)
        return build_samples(
            completions,
            rewards,
            update,
            weights=self.config.scoring.weights,
            max_new_tokens=rollout.sampling.max_new_tokens,
            models=Models(
                policy=sampler,
                reference=self.reference if update.kl.placement == "reward" else None,
                critic=None if self.critic is None else self.critic.critic,
            ),
        )


def measured(variant: Variant, seed: int, start: Path) -> dict[str, Any]:
    """Train until the budget of completions is used up; accuracy along the way, cost, and the last accuracy by prompt.

    Seconds are of sampling, scoring and training together, evaluations left out. Memory is the largest resident size of
    this process.
    """
    torch.set_num_threads(1)
    run = TrainingRun(variant, seed, start)
    rollout = run.config.rollout
    budget = NUM_STEPS * rollout.prompts_per_step * rollout.group_size
    by_prompt = run.accuracy_by_prompt()
    curve = [(0, _mean(by_prompt))]
    seconds, num_steps, next_evaluation = 0.0, 0, budget // 6
    while run.num_completions < budget:
        began = time.perf_counter()
        run.step(num_steps)
        seconds += time.perf_counter() - began
        num_steps += 1
        if run.num_completions >= next_evaluation:
            by_prompt = run.accuracy_by_prompt()
            curve.append((run.num_completions, _mean(by_prompt)))
            next_evaluation += budget // 6
    return {
        "seed": seed,
        "curve": curve,
        "accuracy_by_prompt": by_prompt,
        "num_completions": run.num_completions,
        "num_tokens": run.num_tokens,
        "num_steps": num_steps,
        "num_rounds": run.num_rounds,
        "seconds": seconds,
        "peak_mib": peak_mib(),
    }


def peak_mib() -> float:
    """The largest resident size of this process, in MiB: VmHWM, since ru_maxrss would begin with the parent's."""
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def _mean(by_prompt: dict[str, float]) -> float:
    return sum(by_prompt.values()) / len(by_prompt)
