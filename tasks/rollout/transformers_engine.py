"""The engine in this process: any transformers causal language model, with rows that come and go."""

import math
from collections import deque
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tasks.rollout.batch import MAX_PREFILL_TOKENS, Batch, Row
from tasks.rollout.config import SamplingConfig, TransformersEngineConfig
from tasks.rollout.engine import Completion, FinishReason, GenerationResult, Greedy, GroupRequest, OnProgress, Skipped
from tasks.rollout.packed_linears import packed_linears
from tasks.rollout.prompting import eos_token_ids
from tasks.rollout.sampling import Draw, most_likely, sample, uniforms_of

MAX_TOKEN_BYTES_SLACK = 8
"""Tokens looked at beyond a stop string's length in bytes: enough for its first token to begin before the string."""


class TransformersEngine:
    """Samples with ``model`` as it is: the trainer's own weights, shared in memory.

    Each prompt is prefilled once for its whole group. Rows that finish leave the batch and waiting ones enter, so the
    batch stays full. A row's tokens depend on its seed and the weights alone (up to the last bits of float32 sums).

    Source: ours; rows that leave and enter as in Orca (OSDI 2022), section 3.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: TransformersEngineConfig
    ) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._config = config
        self._eos_ids = eos_token_ids(model.generation_config, tokenizer)
        self._context = getattr(model.config, "max_position_embeddings", None)

    @torch.inference_mode()
    def generate(
        self, requests: Sequence[GroupRequest], sampling: SamplingConfig | Greedy, on_progress: OnProgress
    ) -> GenerationResult:
        """One completion per seed of every request; prompts that leave no room in the context are skipped.

        Raises:
            ValueError: a prompt without tokens, or one that the cache has no room for beside its completion.
        """
        draw: Draw = most_likely if isinstance(sampling, Greedy) else partial(sample, temperature=sampling.temperature)
        groups, skipped = self._groups(requests, sampling)
        if not groups:
            return GenerationResult([], skipped)
        total = sum(map(len, groups))
        num_rows, num_columns = self._shape(groups, total)
        completions: list[Completion] = []
        batch = Batch(self._model, num_rows, num_columns)
        # Long prompts first: rows that are decoded together then differ less, and fewer masked columns are read.
        waiting = deque(sorted(groups, key=lambda group: -len(group[0].request.prompt_token_ids)))
        with packed_linears(self._model, num_rows):
            while waiting or batch.rows or batch.has_waiting:
                newest, logits_BV = _advance(batch, waiting, num_rows)
                finished = self._extend(newest, logits_BV, draw, sampling.stop)
                if finished:
                    completions += [_completion(row, reason) for row, reason in finished]
                    batch.remove([row for row, _ in finished])
                    on_progress(len(completions), total)
        order = {request.group_id: position for position, request in enumerate(requests)}
        completions.sort(key=lambda completion: (order[completion.group_id], completion.sample_index))
        return GenerationResult(completions, skipped)

    def _groups(
        self, requests: Sequence[GroupRequest], sampling: SamplingConfig | Greedy
    ) -> tuple[list[list[Row]], list[Skipped]]:
        groups, skipped = [], []
        for request in requests:
            length = len(request.prompt_token_ids)
            if not length:
                raise ValueError(f"the prompt of group {request.group_id} has no tokens: there is nothing to continue")
            if self._context is not None and length >= self._context:
                skipped.append(Skipped(request.group_id, request.prompt_id, "prompt_too_long"))
            elif request.seeds:
                limit = request.limit(sampling.max_new_tokens)
                limit = limit if self._context is None else min(limit, self._context - length)
                groups.append(
                    [Row(request, index, limit, uniforms_of(seed, limit)) for index, seed in enumerate(request.seeds)]
                )
        return groups, skipped

    def _shape(self, groups: Sequence[Sequence[Row]], num_completions: int) -> tuple[int, int]:
        """Rows decoded together and columns of the cache, within the settings' bounds.

        An eighth more columns than a row can fill: so many steps pass before the rows must be moved to the left.
        """
        longest = max(len(row.request.prompt_token_ids) + row.max_new_tokens for row, *_ in groups)
        num_columns = longest + longest // 8 + 8
        budget = self._config.max_batch_tokens
        num_rows = min(self._config.max_batch_rows, num_completions, budget // num_columns - 1)
        if num_rows < 1:
            raise ValueError(
                f"max_batch_tokens {budget} is too small for a prompt and its completion of {longest} tokens: two rows of "
                f"{num_columns} columns are the least; set rollout.engine.max_batch_tokens to {2 * num_columns} or more, "
                "or lower max_new_tokens or the length of prompts"
            )
        return num_rows, num_columns

    def _extend(
        self, rows: Sequence[Row], logits_BV: Tensor, draw: Draw, stops: tuple[str, ...]
    ) -> list[tuple[Row, FinishReason]]:
        """Give every row its next token; gives the rows that this finishes, and why."""
        tokens_B, logprobs_B = draw(logits_BV, [row.uniforms[len(row.ids)] for row in rows])
        finished: list[tuple[Row, FinishReason]] = []
        for row, token, logprob in zip(rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            if not logprob > -math.inf:  # NaN: the model gave no distribution, nothing was sampled
                finished.append((row, "abort"))
                continue
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.length += 1
            if token in self._eos_ids or (stops and self._has_stop(row, stops)):
                finished.append((row, "stop"))
            elif len(row.ids) >= row.max_new_tokens:
                finished.append((row, "length"))
        return finished

    def _has_stop(self, row: Row, stops: tuple[str, ...]) -> bool:
        # The newest token may complete a stop string; a string of n bytes spans at most n tokens.
        window = max(len(stop.encode()) for stop in stops) + MAX_TOKEN_BYTES_SLACK
        text = self._tokenizer.decode(row.ids[-window:], skip_special_tokens=False)
        return any(stop in text for stop in stops)


def _advance(batch: Batch, waiting: deque[list[Row]], num_rows: int) -> tuple[Sequence[Row], Tensor]:
    """The rows that get a token now and their logits [B, V]: rows that enter, or all.

    Reading prompts waits until a quarter of the batch is free, since it costs a forward pass for a few rows.
    """
    if batch.has_waiting and batch.room:
        return batch.admit_waiting()
    if waiting and not batch.has_waiting and batch.room >= min(max(num_rows // 4, 1), num_rows):
        return batch.admit(_entering(waiting, batch.room))
    return list(batch.rows), batch.decode()


def _entering(waiting: deque[list[Row]], room: int) -> list[list[Row]]:
    """Groups off the queue until the room is full or their prompts, padded to the first and longest, are too much."""
    entering = [waiting.popleft()]
    room -= len(entering[0])
    longest = len(entering[0][0].request.prompt_token_ids)
    while waiting and room > 0 and (len(entering) + 1) * longest <= MAX_PREFILL_TOKENS:
        entering.append(waiting.popleft())
        room -= len(entering[-1])
    return entering


def _completion(row: Row, reason: FinishReason) -> Completion:
    return Completion(row.request.group_id, row.sample_index, tuple(row.ids), tuple(row.logprobs), reason)
