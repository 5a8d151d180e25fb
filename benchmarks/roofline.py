"""Which part of the machine's matrix speed do the policy update and decoding reach?

    python -m benchmarks.roofline [--short] [--repeats N]

SmolLM2-135M in float32, a thread for every core that the process may use. The model's work is counted from its weights, with 2 operations per weight and token in a
forward pass and 6 in forward and backward:

    update    6 (N_layers * T + N_output * C) + 12 * L * H * d * sum over completions i of C_i (P + C_i / 2) + P^2 / 2
    decoding  2 (N_layers + N_output) * tokens + 4 * L * H * d * sum over tokens of the keys that each looks at

with T packed tokens, C completion tokens (the output layer sees no others), L layers of H heads of d. What is computed again in the
backward pass is not counted. The peak is that of the model's own products, of the shapes of that run (each layer's matrices against T
rows, or against as many rows as are decoded at once, forward and for the update also both backward products), weighted by
their work and measured before and after every run. Medians of the shares.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.update import weights
from benchmarks.update_sides import NUM_THREADS, PROMPT_TOKENS, ours, token_ids
from tasks.policy.loading import load_model, load_tokenizer

RESULTS = Path(__file__).resolve().parent / "results"
BATCH = 32
"""Completions of one prompt, decoded together; one that ends leaves the batch."""
NEW_TOKENS = 48


def products(model: Any) -> list[tuple[int, int, int]]:
    """(in, out, how often) of the layers' matrices."""
    counts: dict[tuple[int, int], int] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            shape = (module.in_features, module.out_features)
            counts[shape] = counts.get(shape, 0) + 1
    return [(*shape, count) for shape, count in sorted(counts.items())]


def seconds_of(run: Callable[[], Any], least: float) -> float:
    """Seconds per run, over at least ``least`` seconds."""
    run()
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < least:
        run()
        count += 1
    return (time.perf_counter() - started) / count


def peak(shapes: list[tuple[int, int, int, int]], *, backward: bool, least: float) -> float:
    """FLOP/s of the products alone. ``shapes``: (rows, in, out, how often)."""
    work = spent = 0.0
    for rows, width_in, width_out, count in shapes:
        x, w, g = torch.randn(rows, width_in), torch.randn(width_out, width_in), torch.randn(rows, width_out)
        runs: list[Callable[[], Tensor]] = [lambda x=x, w=w: torch.nn.functional.linear(x, w)]
        if backward:
            runs += [lambda g=g, w=w: g @ w, lambda g=g, x=x: g.t() @ x]
        for run in runs:
            work += 2.0 * rows * width_in * width_out * count
            spent += seconds_of(run, least) * count
    return work / spent


def update_work(model: Any, num_prompt: int, lengths: list[int]) -> float:
    """Operations of one update, by the formula above."""
    settings = model.config
    layers = sum(width_in * width_out * count for width_in, width_out, count in products(model))
    output = model.get_output_embeddings().weight.numel()
    pairs = num_prompt**2 / 2 + sum(length * (num_prompt + length / 2) for length in lengths)
    attention = 12 * settings.num_hidden_layers * settings.num_attention_heads * settings.head_dim * pairs
    return 6 * (layers * (num_prompt + sum(lengths)) + output * sum(lengths)) + attention


def decoding_work(model: Any, num_prompt: int, lengths: list[int]) -> float:
    """Operations of decoding completions of these lengths; the prompts and each first token are left out."""
    settings = model.config
    layers = sum(width_in * width_out * count for width_in, width_out, count in products(model))
    output = model.get_output_embeddings().weight.numel()
    keys = sum(num_prompt + position for length in lengths for position in range(1, length))
    attention = 4 * settings.num_hidden_layers * settings.num_attention_heads * settings.head_dim * keys
    return 2 * (layers + output) * sum(length - 1 for length in lengths) + attention


def decoder(model: Any, folder: Path) -> Callable[[int], tuple[float, list[int]]]:
    """A function that samples at most so many tokens in every row; gives the seconds and the lengths."""
    from tasks.rollout.config import SamplingConfig, TransformersEngineConfig
    from tasks.rollout.engine import GroupRequest
    from tasks.rollout.transformers_engine import TransformersEngine

    engine = TransformersEngine(model, load_tokenizer(folder), TransformersEngineConfig(max_batch_rows=BATCH))
    prompt, _ = token_ids()
    request = GroupRequest("g", "p", tuple(prompt), "", tuple(range(BATCH)))

    def decode(num_tokens: int) -> tuple[float, list[int]]:
        sampling = SamplingConfig(temperature=1.0, max_new_tokens=num_tokens)
        started = time.perf_counter()
        result = engine.generate([request], sampling, lambda done, total: None)
        seconds = time.perf_counter() - started
        return seconds, [len(each.completion_token_ids) for each in result.completions]

    return decode


def measure(repeats: int, least: float) -> dict[str, Any]:
    folder = weights()
    update = ours(folder, {}, {})
    model = load_model(folder, device="cpu")
    decode = decoder(model, folder)
    _, completions = token_ids()
    lengths = [len(ids) for ids in completions]
    num_rows, num_output = PROMPT_TOKENS + sum(lengths), sum(lengths)
    output = (model.config.hidden_size, model.config.vocab_size)
    of_update = [(num_rows, *shape) for shape in products(model)] + [(num_output, *output, 1)]
    of_decoding = [(BATCH, *shape) for shape in products(model)] + [(BATCH, *output, 1)]

    def one_update() -> tuple[float, float]:
        started = time.perf_counter()
        update()
        return time.perf_counter() - started, update_work(model, PROMPT_TOKENS, lengths)

    def one_decoding() -> tuple[float, float]:
        beginning, _ = decode(1)
        seconds, decoded = decode(NEW_TOKENS + 1)
        return seconds - beginning, decoding_work(model, PROMPT_TOKENS, decoded)

    runs = {"update": (one_update, of_update), "decoding": (one_decoding, of_decoding)}
    found: dict[str, Any] = {name: {"shares": [], "gflops": [], "peaks": []} for name in runs}
    update()
    decode(2)
    for repeat in range(repeats):
        for name, (run, shapes) in runs.items():
            peaks = [peak(shapes, backward=name == "update", least=least)]
            seconds, work = run()
            peaks.append(peak(shapes, backward=name == "update", least=least))
            limit = statistics.mean(peaks)
            share = work / seconds / limit
            found[name]["shares"].append(round(share, 3))
            found[name]["gflops"].append(round(work / seconds / 1e9, 1))
            found[name]["peaks"].append([round(each / 1e9, 1) for each in peaks])
            print(
                f"  repeat {repeat + 1}  {name:9} {seconds:6.2f} s  {work / seconds / 1e9:6.1f} of {limit / 1e9:6.1f} "
                f"GFLOP/s  {100 * share:.0f} %",
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="two repeats")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(NUM_THREADS)
    load = [round(each, 2) for each in os.getloadavg()]
    repeats = 2 if given.short else given.repeats
    found = measure(repeats, least=0.05)
    share = {name: round(100 * statistics.median(each["shares"])) for name, each in found.items()}
    machine = {
        "threads": NUM_THREADS,
        "load_average_before": load,
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }
    name = "roofline-short.json" if given.short else "roofline.json"
    (RESULTS / name).write_text(
        json.dumps({"machine": machine, "repeats": repeats, **found, "percent": share}, indent=1) + "\n"
    )
    print(f"roofline: update {share['update']} % of GEMM peak, decoding {share['decoding']} %")


if __name__ == "__main__":
    main()
