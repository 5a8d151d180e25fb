"""Supervised training of the scratch policy on arithmetic demonstrations."""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tasks.policy.arithmetic import Demonstration, make_demonstration
from tasks.policy.config import WarmStartConfig
from tasks.values.seeds import derive_seed

IGNORED = -100
BETAS = (0.9, 0.999)
MAX_GRAD_NORM = 1.0
FINAL_RATE_SHARE = 0.1
NUM_TAIL_UPDATES = 50


class Example(NamedTuple):
    """One demonstration in token ids: the prompt with its bos, the completion with its eos."""

    prompt_token_ids: list[int]
    completion_token_ids: list[int]


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: WarmStartConfig,
    *,
    seed: int,
    on_progress: Callable[[int, int], None],
) -> dict[str, float]:
    """Train ``model`` in place: first on shown working only, then on a mixture with bare answers.

    The second phase teaches the terse habit that lowers the sampled accuracy on purpose, so that the loop that follows
    has something to find; returning to shown working is the larger part of what it can win back.

    Args:
        model: a causal language model; left in eval mode.
        tokenizer: writes the bos before a prompt and has an eos.
        config: numbers of updates and demonstrations, shares, learning rate.
        seed: decides every demonstration. Same weights, seed and thread count: the same result, bit for bit.
        on_progress: called with (updates done, updates in all).

    Returns:
        ``loss`` (nats per completion token, mean of the last 50 updates), ``worked_only_loss`` (the same at the end of the
        first phase, absent without one), ``num_updates``, ``num_demonstrations``, ``num_bare`` (demonstrations without
        working), ``num_slips`` (steps off by one, in all), ``num_completion_tokens``.

    Raises:
        FloatingPointError: a loss is not finite.
        ValueError: a demonstration is longer than the model's context.
    """
    num_worked_only = round(config.num_updates * config.worked_only_share)
    demonstrations = make_demonstrations(config, num_worked_only, seed=seed)
    examples = encode(tokenizer, demonstrations)
    _check_context(examples, model.config.max_position_embeddings)
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=0.0)
    losses: list[float] = []
    model.train()
    for update in range(config.num_updates):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate_at(update, config)
        batch = examples[update * config.batch_size : (update + 1) * config.batch_size]
        losses.append(_update(model, optimiser, batch, update))
        on_progress(update + 1, config.num_updates)
    model.eval()
    metrics = {
        "loss": _tail_mean(losses),
        "num_updates": float(len(losses)),
        "num_demonstrations": float(len(demonstrations)),
        "num_bare": float(sum(demonstration.is_bare for demonstration in demonstrations)),
        "num_slips": float(sum(demonstration.num_slips for demonstration in demonstrations)),
        "num_completion_tokens": float(sum(len(example.completion_token_ids) for example in examples)),
    }
    if num_worked_only:
        metrics["worked_only_loss"] = _tail_mean(losses[:num_worked_only])
    return metrics


def make_demonstrations(config: WarmStartConfig, num_worked_only: int, *, seed: int) -> list[Demonstration]:
    """The demonstrations of every update, in order: the first ``num_worked_only`` updates see no bare answer."""
    rng = random.Random(derive_seed(seed, "demonstrations"))  # noqa: S311  # reproducible on purpose, no secret
    return [
        make_demonstration(
            rng,
            min_terms=config.min_terms,
            max_terms=config.max_terms,
            bare_share=0.0 if update < num_worked_only else config.bare_answer_share,
            slip_share=config.slip_share,
        )
        for update in range(config.num_updates)
        for _ in range(config.batch_size)
    ]


def encode(tokenizer: PreTrainedTokenizerBase, demonstrations: Sequence[Demonstration]) -> list[Example]:
    """Token ids as a rollout would see and write them: bos + prompt, then completion + eos."""
    prompts = tokenizer([demonstration.prompt for demonstration in demonstrations])["input_ids"]
    completions = tokenizer([demonstration.completion for demonstration in demonstrations], add_special_tokens=False)[
        "input_ids"
    ]
    return [
        Example(prompt, [*completion, tokenizer.eos_token_id])
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def pad(examples: Sequence[Example], pad_token_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and next-token targets of a batch, padded on the right.

    With causal attention nothing looks at what stands to its right, so no attention mask is needed.

    Returns:
        input_ids_BT: [B, T] int64, the sequence without its last token, then ``pad_token_id``.
        target_ids_BT: [B, T] int64, the token that follows, where it belongs to the completion, else -100. Told apart by
            length, never by the pad id.
    """
    num_tokens = max(len(prompt) + len(completion) for prompt, completion in examples) - 1
    input_ids_BT = torch.full((len(examples), num_tokens), pad_token_id, dtype=torch.int64)
    target_ids_BT = torch.full((len(examples), num_tokens), IGNORED, dtype=torch.int64)
    for row, (prompt, completion) in enumerate(examples):
        end = len(prompt) + len(completion) - 1
        input_ids_BT[row, :end] = torch.tensor([*prompt, *completion[:-1]])
        target_ids_BT[row, len(prompt) - 1 : end] = torch.tensor(completion)
    return input_ids_BT, target_ids_BT


def completion_loss(logits_BTV: torch.Tensor, target_ids_BT: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood of the completion tokens, in nats.

        L = -(1 / N) * sum_bt [target_bt != -100] * log softmax(logits_bt)[target_bt],   N = number of completion tokens

    Args:
        logits_BTV: [B, T, V].
        target_ids_BT: [B, T] int64 from ``pad``.

    Source: maximum likelihood on the answer part of an instruction; as in InstructGPT's first stage, arXiv:2203.02155, 3.1.
    """
    return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_ids_BT.flatten(), ignore_index=IGNORED)


def learning_rate_at(update: int, config: WarmStartConfig) -> float:
    """Linear warm-up over the first updates, then half a cosine down to a tenth of ``learning_rate``.

        rate(u) = lr * min(1, (u + 1) / warmup) * (0.1 + 0.9 * (1 + cos(pi * u / updates)) / 2)

    Args:
        update: 0 for the first update.
    """
    warmup = min(1.0, (update + 1) / config.num_warmup_updates) if config.num_warmup_updates else 1.0
    cosine = (1 + math.cos(math.pi * update / config.num_updates)) / 2
    return config.learning_rate * warmup * (FINAL_RATE_SHARE + (1 - FINAL_RATE_SHARE) * cosine)


def _check_context(examples: Sequence[Example], max_positions: int) -> None:
    longest = max(len(prompt) + len(completion) for prompt, completion in examples)
    if longest > max_positions:
        raise ValueError(
            f"a demonstration has {longest} tokens, policy.max_positions is {max_positions}; raise it or lower max_terms"
        )


def _update(model: PreTrainedModel, optimiser: torch.optim.Optimizer, batch: list[Example], update: int) -> float:
    input_ids_BT, target_ids_BT = pad(batch, pad_token_id=model.config.pad_token_id)
    loss = completion_loss(model(input_ids=input_ids_BT, use_cache=False).logits, target_ids_BT)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise FloatingPointError(f"update {update} of the warm start has loss {value}; lower warm_start.learning_rate")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimiser.step()
    return value


def _tail_mean(values: Sequence[float]) -> float:
    tail = values[-NUM_TAIL_UPDATES:]
    return sum(tail) / len(tail)
