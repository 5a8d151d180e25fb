"""The reward model's side of the loop without the pipeline: labels of a policy's iterations, and retrainings on them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.training_run import Row, TrainingRun, silent
from benchmarks.variants import KL, STEPS_PER_ITERATION, Variant
from tasks.curriculum.selection import select, select_heldout
from tasks.reward import retraining
from tasks.reward.anchor import anchor_rows
from tasks.reward.config import HistoryReplay, RewardModelConfig
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import kind_of
from tasks.reward.measures import accuracy_by_prompt, judge_rows
from tasks.reward.replay import mix
from tasks.reward.trainer import RewardTrainer
from tasks.values.seeds import derive_seed

NUM_ITERATIONS = 5
TRAINER = "trainer"
Labels = dict[str, Any]


class RecordedRun(TrainingRun):
    """A policy loop that keeps what it sampled: completions and rewards of every draw since they were last taken."""

    def __init__(self, variant: Variant, seed: int, start: Path) -> None:
        super().__init__(variant, seed, start)
        self.drawn: list[tuple[list[Row], list[Row]]] = []

    def scored(self, model: Any, selection: Sequence[Row], num_samples: int, seed: int) -> tuple[list[Row], list[Row]]:
        found = super().scored(model, selection, num_samples, seed)
        self.drawn.append(found)
        return found

    def labels(self, name: str, iteration: int) -> list[Row]:
        """The labels of what was drawn since the last call."""
        config, drawn = self.config.reward_model.labels, self.drawn
        self.drawn = []
        rows, _ = kind_of(config).from_rows(
            [row for completions, _ in drawn for row in completions],
            [row for _, rewards in drawn for row in rewards],
            {row["prompt_id"]: row["prompt_key"] for row in self.prompts},
            config,
            source=self.config.scoring.correctness,
            origin_iteration=iteration,
            seed=derive_seed(self.seed, iteration, name),
        )
        return rows


def label_sets(seed: int, start: Path) -> Labels:
    """Labels of the first policy and of five iterations of GRPO, and of the held-out prompts after each iteration."""
    torch.set_num_threads(1)
    run = RecordedRun(Variant("grpo", KL), seed, start)
    reward, rollout = run.config.reward_model, run.config.rollout
    selection = select(
        run.prompts, num_prompts=reward.num_initial_prompts, seed=derive_seed(seed, "initial"), step_index=0
    )
    run.scored(run.policy, selection, rollout.group_size, derive_seed(seed, "initial-rollouts"))
    labels: Labels = {"fresh": [run.labels("labels", 0)], "heldout": [], "config": reward.model_dump(mode="json")}
    for iteration in range(1, NUM_ITERATIONS + 1):
        for step in range((iteration - 1) * STEPS_PER_ITERATION, iteration * STEPS_PER_ITERATION):
            run.step(step)
        labels["fresh"].append(run.labels("labels", iteration))
        run.scored(
            run.policy,
            select_heldout(run.prompts),
            run.config.evaluation.num_samples,
            derive_seed(seed, "evaluation"),
        )
        labels["heldout"].append(run.labels("evaluation-labels", iteration))
    labels["heldout_keys"] = sorted({row["prompt_key"] for row in run.prompts if row["split"] == "heldout"})
    return labels


def first_model(labels: Labels, seed: int, start: Path, folder: Path) -> dict[str, Any]:
    """Train the first reward model into ``folder``, where every chain begins."""
    torch.set_num_threads(1)
    config = RewardModelConfig.model_validate(labels["config"])
    anchor = _anchor(labels, config, seed)
    training, _ = _mixed(labels, 0, 0.0, anchor, seed)
    model = RewardModel.from_policy(start, device="cpu", seed=derive_seed(seed, 0, "reward"))
    trainer = RewardTrainer(model, config.training, kind_of(config.labels))
    metrics = retraining.found(
        trainer, training, anchor, config, seed=derive_seed(seed, 0, "reward"), on_progress=silent
    )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.save(folder)
    trainer.save(folder / TRAINER)
    return {
        "num_anchor_labels": len(anchor),
        "metrics": metrics,
        "anchor_by_prompt": _by_prompt(trainer, anchor, config),
    }


def chain(labels: Labels, seed: int, share: float, folder: Path) -> dict[str, Any]:
    """Five retrainings from the model in ``folder``, each on an iteration's new labels and ``share`` of all earlier ones.

    A retraining that the anchor set would refuse is counted and kept: what it forgot is the question here.
    """
    config = RewardModelConfig.model_validate(labels["config"])
    anchor = _anchor(labels, config, seed)
    trainer = RewardTrainer.load(
        RewardModel.load(folder, device="cpu"), config.training, kind_of(config.labels), folder / TRAINER
    )
    iterations = []
    for iteration in range(1, NUM_ITERATIONS + 1):
        training, replay = _mixed(labels, iteration, share, anchor, seed)
        metrics = retraining.retrain(
            trainer,
            training,
            labels["heldout"][iteration - 1],
            anchor,
            config,
            seed=derive_seed(seed, iteration, "reward"),
            on_progress=silent,
        )
        iterations.append({**metrics, **replay})
    return {"iterations": iterations, "anchor_by_prompt": _by_prompt(trainer, anchor, config)}


def _anchor(labels: Labels, config: RewardModelConfig, seed: int) -> list[Row]:
    return [dict(row) for row in anchor_rows(labels["fresh"][0], config.anchor, seed=derive_seed(seed, "anchor"))]


def _mixed(
    labels: Labels, iteration: int, share: float, anchor: Sequence[Row], seed: int
) -> tuple[list[Row], dict[str, float]]:
    return mix(
        labels["fresh"][iteration],
        [row for earlier in labels["fresh"][:iteration] for row in earlier],
        HistoryReplay(fraction=share),
        seed=derive_seed(seed, iteration, "replay"),
        heldout_keys=set(labels["heldout_keys"]),
        anchor_keys={row["prompt_key"] for row in anchor},
    )


def _by_prompt(trainer: RewardTrainer, anchor: Sequence[Row], config: RewardModelConfig) -> dict[str, float]:
    reading = config.training
    judged = judge_rows(
        trainer.model,
        anchor,
        trainer.kind,
        micro_batch_tokens=reading.micro_batch_tokens,
        max_tokens=reading.max_tokens,
    )
    return accuracy_by_prompt(judged)
