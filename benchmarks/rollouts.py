"""How many tokens per second does the engine in this process sample, against transformers' generate?

    python -m benchmarks.rollouts            SmolLM2-135M and the quick start's 0.1 M model, three interleaved repeats
    python -m benchmarks.rollouts --short    eight prompts, at most 32 tokens, two repeats: below three minutes
    python -m benchmarks.rollouts --vllm-url URL    a vLLM server of the same SmolLM2 that runs elsewhere

vLLM takes part where `make vllm` has built its environment: a server of the same SmolLM2 in float32, as the engine `vllm` starts
it, is started first and idle while the others sample.
All sample the same groups of eight at temperature 1 from the whole vocabulary, with the same limits and the same ends.
Only tokens of completions count (up to their end), so rows that are computed after their end cost time and give nothing.
Samples differ between the two, lengths too; both are checked against a plain forward pass.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rollout_peers import (
    Workload,
    by_engine,
    by_generate,
    by_vllm,
    generate_error,
    largest_error,
    small_workload,
    smollm2,
)

RESULTS = Path(__file__).parent / "results"


@dataclass
class Run:
    """One repeat of one peer."""

    tokens: int
    seconds: float
    cpu_seconds: float
    completions: Sequence[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...] | None]]

    @property
    def speed(self) -> float:
        """Tokens of completions per second."""
        return self.tokens / self.seconds


def timed(sample: Callable[[Workload], Any], workload: Workload) -> Run:
    began, cpu_began = time.perf_counter(), time.process_time()
    completions = sample(workload)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return Run(sum(len(ids) for _, ids, _ in completions), seconds, cpu_seconds, completions)


def compare(
    workload: Workload, peers: dict[str, Callable[[Workload], Any]], num_repeats: int, most_seconds: float
) -> dict[str, Any]:
    """Every peer in turn, ``num_repeats`` times; the machine's moods then meet all of them alike. No repeat begins after
    ``most_seconds``."""
    began = time.perf_counter()
    for sample in peers.values():
        sample(workload.first(1, max_new_tokens=2))
    runs: dict[str, list[Run]] = {name: [] for name in peers}
    for repeat in range(num_repeats):
        if repeat and time.perf_counter() - began > most_seconds:
            break
        for name, sample in peers.items():
            run = timed(sample, workload.with_seed(repeat))
            runs[name].append(run)
            print(
                f"{workload.name}: {name} {run.tokens} tokens in {run.seconds:.1f} s, {run.speed:.1f}/s, CPU {run.cpu_seconds:.1f} s",
                flush=True,
            )
    found = {name: _summary(workload, each) for name, each in runs.items()}
    ours = found["ours"]["tokens_per_second"]
    for name in found:
        found[name]["ours_is_faster_by"] = ours / found[name]["tokens_per_second"]
    return {"rows": workload.rows, "max_new_tokens": workload.max_new_tokens, "peers": found}


def _summary(workload: Workload, runs: Sequence[Run]) -> dict[str, Any]:
    lengths = sorted(len(ids) for run in runs for _, ids, _ in run.completions)
    error, mean, standard_error = largest_error(workload, [each for run in runs for each in run.completions])
    return {
        "tokens_per_second": statistics.median(run.speed for run in runs),
        "runs": [{"tokens": run.tokens, "seconds": run.seconds, "cpu_seconds": run.cpu_seconds} for run in runs],
        "lengths": {
            "mean": statistics.mean(lengths),
            "quartiles": [lengths[len(lengths) * quarter // 4] for quarter in (1, 2, 3)],
        },
        "largest_logprob_error": error,
        "mean_logprob_of_completions": [mean, standard_error],
    }


@contextmanager
def vllm_server() -> Iterator[str | None]:
    """The address of a vLLM server that lives inside the block; None where its environment is not built."""
    from benchmarks.update import weights
    from tasks.rollout.config import VllmEngineConfig
    from tasks.rollout.vllm_server import OwnedServer, interpreter_of

    config = VllmEngineConfig(kind="vllm", max_model_len=1024)
    try:
        interpreter_of(config)
    except ValueError as error:
        print(f"without vLLM: {error}")
        yield None
        return
    server = OwnedServer(config, Path("runs/benchmark-vllm.log"))
    try:
        yield server.start(weights()).url
    finally:
        server.stop()


def machine(num_threads: int) -> dict[str, Any]:
    import torch
    import transformers

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "machine": platform.platform(),
        "processor": next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
        ),
        "threads": num_threads,
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="eight prompts, at most 32 tokens, two repeats")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--threads", type=int, default=cores, help="of a matrix product (as many as there are cores to use)"
    )
    parser.add_argument("--vllm-url", help="a vLLM server of the same SmolLM2, for example http://127.0.0.1:8000")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(given.threads)
    about = machine(given.threads)
    num_prompts, max_new_tokens, num_repeats = (8, 32, 2) if given.short else (24, 64, 3)
    peers = {"ours": by_engine, "generate": by_generate}
    model = smollm2(num_prompts, max_new_tokens)
    found = {"scratch": compare(small_workload(192), peers, 3, 60)}
    with nullcontext(given.vllm_url) if given.vllm_url else vllm_server() as url:
        large = {**peers, "vllm": by_vllm(url)} if url else peers
        found["smollm2"] = compare(model, large, num_repeats, 120 if given.short else 600)
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = "rollouts-short.json" if given.short else "rollouts.json"
    (RESULTS / name).write_text(
        json.dumps({"versions": about, **found, "generate_logprob_error": generate_error(model)}, indent=1) + "\n"
    )
    for workload, each in found.items():
        for peer, numbers in each["peers"].items():
            mean, error = numbers["mean_logprob_of_completions"]
            print(
                f"{workload}: {peer} {numbers['tokens_per_second']:.1f} tokens/s, lengths {numbers['lengths']}, log-probs "
                f"within {numbers['largest_logprob_error']}, mean {mean:.3f} +- {error:.3f} nats per token"
            )
    by = found["smollm2"]["peers"]
    said = [
        f"{by[peer]['ours_is_faster_by']:.1f}x {label}"
        for peer, label in (("generate", "generate"), ("vllm", "vLLM"))
        if peer in by
    ]
    small = found["scratch"]["peers"]["generate"]["ours_is_faster_by"]
    print(f"the 0.1 M model: {small:.1f}x generate")
    print(f"rollouts: {', '.join(said)}")


if __name__ == "__main__":
    main()
