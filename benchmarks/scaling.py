"""How do time and memory of an update grow with the number of completions and with their length?

    python -m benchmarks.scaling [--short] [--repeats N]

A Llama of 1.3 M weights in float32, one thread, micro-batches of 1024 tokens, groups of 8 behind prompts of 32 tokens. Completions of 64 tokens,
16 to 256 of them; and 16 completions of 32 to 256 tokens. Each case is a process of its own (VmHWM over the size before the first update);
the cases take turns. Printed: slopes of log time and log memory over log size (1: linear, 0: flat), by least squares over the medians.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.update_sides import clear_peak, resident_mib

RESULTS = Path(__file__).resolve().parent / "results"
GROUP, PROMPT = 8, 32
NUM_THREADS = 1
COMPLETIONS = {count: (count, 64) for count in (16, 32, 64, 128, 256)}
LENGTHS = {length: (16, length) for length in (32, 64, 128, 256)}


def case(count: int, length: int, repeats: int) -> None:
    """Print seconds of every update, and the memory above the weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from tasks.grpo.config import UpdateConfig
    from tasks.grpo.trainer import PolicyTrainer

    torch.set_num_threads(NUM_THREADS)
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=2048, tie_word_embeddings=True, num_key_value_heads=4, **sizes))
    rng = random.Random(0)
    rows = []
    for index in range(count):
        if index % GROUP == 0:
            prompt = [rng.randrange(2048) for _ in range(PROMPT)]
        rows.append(
            {
                "group_id": f"g{index // GROUP}",
                "sample_index": index % GROUP,
                "prompt_token_ids": prompt,
                "completion_token_ids": [rng.randrange(2048) for _ in range(length)],
                "sampler_logprobs": None,
                "temperature": 1.0,
                "advantage": 1.0 if index % 2 else -1.0,
                "token_advantages": None,
                "is_masked": False,
                "has_signal": True,
            }
        )
    settings = {"algorithm": "grpo", "kl": "none", "precision": "float32", "micro_batch_tokens": 1024}
    config = UpdateConfig.model_validate({**settings, "optimiser": {"learning_rate": 1e-6}})
    trainer = PolicyTrainer(model, config)
    seconds, before = [], resident_mib("VmRSS")
    clear_peak()
    for number in range(repeats + 1):
        started = time.perf_counter()
        trainer.update(rows, reference=None, max_new_tokens=length, seed=number, on_progress=lambda done, total: None)
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds[1:], "mib": resident_mib("VmHWM") - before}))


def slope(sizes: list[int], values: list[float]) -> float:
    """Least-squares slope of log value over log size."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def measure(turns: int, repeats: int) -> dict[str, dict[int, dict[str, Any]]]:
    found: dict[str, dict[int, dict[str, Any]]] = {"completions": {}, "length": {}}
    environment = os.environ | {"OMP_NUM_THREADS": str(NUM_THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
    for _ in range(turns):
        for name, cases in (("completions", COMPLETIONS), ("length", LENGTHS)):
            for size, (count, length) in cases.items():
                command = [sys.executable, "-m", "benchmarks.scaling", "--case", f"{count},{length},{repeats}"]
                printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
                got = json.loads(printed.splitlines()[-1])
                held = found[name].setdefault(size, {"seconds": [], "mib": []})
                held["seconds"] += [round(each, 3) for each in got["seconds"]]
                held["mib"].append(round(got["mib"], 1))
                print(f"  {name:12} {size:4}  {min(got['seconds']):7.2f} s  {got['mib']:6.0f} MiB", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one turn, two updates per case")
    parser.add_argument("--repeats", type=int, default=3, help="turns")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        count, length, repeats = map(int, given.case.split(","))
        case(count, length, repeats)
        return
    load = [round(each, 2) for each in os.getloadavg()]
    found = measure(1 if given.short else given.repeats, 2)
    slopes = {}
    for name, cases in found.items():
        for number in ("seconds", "mib"):
            medians = [statistics.median(each[number]) for each in cases.values()]
            slopes[f"{number} in {name}"] = round(slope(list(cases), medians), 2)
    machine = {"num_cpus": os.cpu_count(), "load_average_before": load, "python": platform.python_version()}
    name = "scaling-short.json" if given.short else "scaling.json"
    (RESULTS / name).write_text(json.dumps({"machine": machine, "cases": found, "slopes": slopes}, indent=1) + "\n")
    print(
        f"scaling: time ^{slopes['seconds in completions']} in completions, ^{slopes['seconds in length']} in length; "
        f"memory ^{slopes['mib in completions']} and ^{slopes['mib in length']}"
    )


if __name__ == "__main__":
    main()
