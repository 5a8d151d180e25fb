"""The contenders of benchmarks.update, each in a process of its own: one update per line that arrives on its standard input."""

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_THREADS = len(os.sched_getaffinity(0))
"""As many as there are cores for this process: `taskset -c 1 python -m ...` measures on one."""
PROMPT_TOKENS = 96
GROUP = 8
SHORTEST, LONGEST = 32, 160
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 1.0, 0.25]
STD_EPS = 1e-4  # TRL's
RATE = 1e-12  # the weights stay: every update is the same one


def token_ids() -> tuple[list[int], list[list[int]]]:
    """One prompt and a group of ragged completions, from a fixed seed."""
    rng = random.Random(0)
    lengths = [SHORTEST, LONGEST] + [rng.randint(SHORTEST, LONGEST) for _ in range(GROUP - 2)]
    return (
        [rng.randrange(100, 40_000) for _ in range(PROMPT_TOKENS)],
        [[rng.randrange(100, 40_000) for _ in range(length)] for length in lengths],
    )


def resident_mib(field: str) -> float:
    """VmRSS or VmHWM of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def ours(folder: Path, changes: dict[str, Any], machine: dict[str, Any]) -> Callable[[], dict[str, float]]:
    """``PolicyTrainer`` with TRL's default objective; gives a function that makes one update."""
    from tasks.grpo.config import UpdateConfig
    from tasks.grpo.trainer import PolicyTrainer
    from tasks.policy.loading import load_model
    from tasks.runtime.config import MachineConfig

    prompt, completions = token_ids()
    mean, std = statistics.mean(REWARDS), statistics.stdev(REWARDS)
    rows = [
        {
            "group_id": "g",
            "sample_index": index,
            "prompt_token_ids": prompt,
            "completion_token_ids": ids,
            "sampler_logprobs": None,
            "temperature": 1.0,
            "advantage": (reward - mean) / (std + STD_EPS),
            "token_advantages": None,
            "is_masked": False,
            "has_signal": True,
        }
        for index, (ids, reward) in enumerate(zip(completions, REWARDS, strict=True))
    ]
    parts = {"algorithm": "dapo", "overlong": "none", "group_filter": "keep", "objective": {"clip_high": 0.2}}
    optimiser = {"learning_rate": RATE, **changes.pop("optimiser", {})}
    config = UpdateConfig.model_validate({**parts, "optimiser": optimiser, "precision": "float32", **changes})
    trainer = PolicyTrainer(load_model(folder, device="cpu"), config, MachineConfig.model_validate(machine))

    def update() -> dict[str, float]:
        return trainer.update(
            rows, reference=None, max_new_tokens=LONGEST, seed=1, on_progress=lambda done, total: None
        )

    return update


def serve_ours(folder: Path, changes: dict[str, Any], machine: dict[str, Any]) -> None:
    update = ours(folder, changes, machine)
    before = resident_mib("VmRSS")
    print("ready", flush=True)
    for _ in sys.stdin:
        clear_peak()
        started = now()
        metrics = update()
        report(started, before, metrics["loss"], metrics["grad_norm"])


def serve_trl(folder: Path, batch: int, *, checkpointing: bool) -> None:
    """TRL's trainer in its own loop, which waits at the beginning of every step."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from trl import GRPOTrainer

    from tasks.policy.loading import load_model, load_tokenizer

    prompt, completions = token_ids()

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [prompt] * len(prompts),
            "completion_ids": completions,
            "logprobs": [[0.0] * len(ids) for ids in completions],
        }

    GRPOTrainer(
        model=load_model(folder, device="cpu"),
        reward_funcs=lambda completions, **_: REWARDS,
        args=trl_settings(batch, checkpointing=checkpointing),
        train_dataset=Dataset.from_dict({"prompt": ["a prompt"] * 8}),
        processing_class=load_tokenizer(folder),
        rollout_func=rollout,
        callbacks=[turns()],
    ).train()


def trl_settings(batch: int, *, checkpointing: bool) -> Any:
    """TRL's defaults but for what the machine and the comparison need."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir="runs/benchmark-trl",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=checkpointing,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=GROUP // batch,
        num_generations=GROUP,
        max_completion_length=LONGEST,
        learning_rate=RATE,
        max_steps=1000,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        shuffle_dataset=False,
    )


def turns() -> Any:
    """A callback that holds every step until a line arrives, and reports it when its loss is logged."""
    from transformers import TrainerCallback

    class Turns(TrainerCallback):  # type: ignore[misc]
        before = 0.0
        started = (0.0, 0.0)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not self.before:
                self.before = resident_mib("VmRSS")
                print("ready", flush=True)
            if not sys.stdin.readline():
                os._exit(0)
            clear_peak()
            self.started = now()

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            if "grad_norm" in logs:
                report(self.started, self.before, logs["loss"], logs["grad_norm"])

    return Turns()


def clear_peak() -> None:
    """Let VmHWM begin again at the present size."""
    Path("/proc/self/clear_refs").write_text("5")


def now() -> tuple[float, float]:
    """Wall clock and processor time of all threads, seconds."""
    return time.perf_counter(), time.process_time()


def report(started: tuple[float, float], before: float, loss: float, norm: float) -> None:
    seconds, cpu = (end - begin for end, begin in zip(now(), started, strict=True))
    found = {"seconds": seconds, "cpu": cpu, "mib": resident_mib("VmHWM") - before}
    print(json.dumps({**found, "loss": float(loss), "grad_norm": float(norm)}), flush=True)


SIDES: dict[str, Callable[[Path], None]] = {
    "ours": lambda folder: serve_ours(folder, {}, {}),
    "ours, checkpointing": lambda folder: serve_ours(folder, {}, {"gradient_checkpointing": True}),
    "ours, int8 moments": lambda folder: serve_ours(folder, {"optimiser": {"state": "int8"}}, {}),
    "ours, lean": lambda folder: serve_ours(folder, {"optimiser": {"state": "int8"}}, {"gradient_checkpointing": True}),
    "TRL default": lambda folder: serve_trl(folder, GROUP, checkpointing=True),
    "TRL tuned": lambda folder: serve_trl(folder, GROUP, checkpointing=False),
    "TRL tuned, batches of 4": lambda folder: serve_trl(folder, GROUP // 2, checkpointing=False),
}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(NUM_THREADS)
    SIDES[sys.argv[1]](Path(sys.argv[2]))
