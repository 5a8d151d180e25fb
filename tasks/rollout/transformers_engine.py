"""The engine in this process: any transformers causal language model, with rows that come and go."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tasks.rollout.cache import Layer, cache_of, join_rows, keep_rows, layers_of, repeat_rows
from tasks.rollout.config import SamplingConfig, TransformersEngineConfig
from tasks.rollout.engine import Completion, FinishReason, GenerationResult, Greedy, GroupRequest, OnProgress, Skipped
from tasks.rollout.prompting import eos_token_ids
from tasks.rollout.sampling import Draw, most_likely, sample, uniforms_of

MAX_TOKEN_BYTES_SLACK = 8
"""Tokens looked at beyond a stop string's length in bytes: enough for its first token to begin before the string."""


@dataclass
class _Row:
    """One completion under way."""

    request: GroupRequest
    sample_index: int
    max_new_tokens: int
    uniforms: Tensor
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens in the cache once the newest id has been read."""
        return len(self.request.prompt_token_ids) + len(self.ids)


class TransformersEngine:
    """Samples with ``model`` as it is: the trainer's own weights, shared in memory.

    Each prompt is prefilled once for its whole group. Rows that finish leave the batch and waiting groups enter, so the
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
        """One completion per seed of every request; prompts that leave no room in the context are skipped."""
        draw: Draw = most_likely if isinstance(sampling, Greedy) else partial(sample, temperature=sampling.temperature)
        waiting: deque[GroupRequest] = deque()
        skipped = []
        for request in requests:
            if self._context is not None and len(request.prompt_token_ids) >= self._context:
                skipped.append(Skipped(request.group_id, request.prompt_id, "prompt_too_long"))
            else:
                waiting.append(request)
        total = sum(len(request.seeds) for request in waiting)
        completions: list[Completion] = []
        batch = _Batch(self._model)
        while waiting or batch.rows:
            entering = self._entering(waiting, len(batch.rows))
            if entering:
                rows = [self._row(request, i, sampling) for request in entering for i in range(len(request.seeds))]
                logits_BV = batch.admit(entering, rows)
                newest = rows
            else:
                logits_BV = batch.decode()
                newest = batch.rows
            self._extend(newest, logits_BV, draw)
            finished = [(row, reason) for row in newest if (reason := self._finish_reason(row, sampling.stop))]
            if finished:
                completions += [_completion(row, reason) for row, reason in finished]
                batch.remove({id(row) for row, _ in finished})
                on_progress(len(completions), total)
        order = {request.group_id: position for position, request in enumerate(requests)}
        completions.sort(key=lambda completion: (order[completion.group_id], completion.sample_index))
        return GenerationResult(completions, skipped)

    def _entering(self, waiting: deque[GroupRequest], num_rows: int) -> list[GroupRequest]:
        """The groups that enter now: whole groups while there is room, a group larger than the batch alone.

        Entering waits until a quarter of the batch is free, since each entry costs a forward pass for a few rows.
        """
        room = self._config.max_batch_rows - num_rows
        if num_rows and room < self._config.max_batch_rows // 4:
            return []
        entering: list[GroupRequest] = []
        while waiting and (len(waiting[0].seeds) <= room or not (num_rows or entering)):
            request = waiting.popleft()
            entering.append(request)
            room -= len(request.seeds)
        return entering

    def _row(self, request: GroupRequest, index: int, sampling: SamplingConfig | Greedy) -> _Row:
        limit = request.limit(sampling.max_new_tokens)
        if self._context is not None:
            limit = min(limit, self._context - len(request.prompt_token_ids))
        return _Row(request, index, limit, uniforms_of(request.seeds[index], limit))

    def _extend(self, rows: Sequence[_Row], logits_BV: Tensor, draw: Draw) -> None:
        uniforms_B = torch.stack([row.uniforms[len(row.ids)] for row in rows]).to(logits_BV.device)
        tokens_B, logprobs_B = draw(logits_BV, uniforms_B)
        for row, token, logprob in zip(rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)

    def _finish_reason(self, row: _Row, stops: tuple[str, ...]) -> FinishReason | None:
        if row.ids[-1] in self._eos_ids or (stops and self._has_stop(row, stops)):
            return "stop"
        return "length" if len(row.ids) >= row.max_new_tokens else None

    def _has_stop(self, row: _Row, stops: tuple[str, ...]) -> bool:
        # The newest token may complete a stop string; a string of n bytes spans at most n tokens.
        window = max(len(stop.encode()) for stop in stops) + MAX_TOKEN_BYTES_SLACK
        text = self._tokenizer.decode(row.ids[-window:], skip_special_tokens=False)
        return any(stop in text for stop in stops)


class _Batch:
    """The rows under way and their cache. Columns are right-aligned: the newest token of every row is the last one."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.rows: list[_Row] = []
        self._layers: list[Layer] = []

    def admit(self, requests: Sequence[GroupRequest], rows: list[_Row]) -> Tensor:
        """Prefill the prompts, each once, add their rows, and give the rows' next logits [B, V]."""
        lengths = [len(request.prompt_token_ids) for request in requests]
        input_ids_GT = torch.zeros(len(requests), max(lengths), dtype=torch.long)
        for position, request in enumerate(requests):
            input_ids_GT[position, max(lengths) - lengths[position] :] = torch.tensor(request.prompt_token_ids)
        logits_GV, layers = self._forward(input_ids_GT, self._mask(lengths, max(lengths)), [])
        counts_G = torch.tensor([len(request.seeds) for request in requests], device=logits_GV.device)
        repeated = repeat_rows(layers, counts_G)
        self._layers = join_rows(self._layers, repeated) if self.rows else repeated
        self.rows = self.rows + rows
        return logits_GV.repeat_interleave(counts_G, dim=0)

    def decode(self) -> Tensor:
        """Read every row's newest token; gives the next logits [B, V]."""
        input_ids_B1 = torch.tensor([[row.ids[-1]] for row in self.rows])
        columns = self._layers[0][0].shape[2] + 1
        logits_BV, self._layers = self._forward(
            input_ids_B1, self._mask([row.length for row in self.rows], columns), self._layers
        )
        return logits_BV

    def remove(self, finished: set[int]) -> None:
        """Drop the finished rows, and the columns that only they used. ``finished`` holds ``id``s of rows."""
        kept = [index for index, row in enumerate(self.rows) if id(row) not in finished]
        self.rows = [self.rows[index] for index in kept]
        if not self.rows:
            self._layers = []
            return
        columns = max(row.length - 1 for row in self.rows)  # the newest id has not been read yet
        self._layers = keep_rows(self._layers, torch.tensor(kept, device=self._layers[0][0].device), columns)

    def _mask(self, lengths: list[int], columns: int) -> Tensor:
        """[B, T] 1 on the last ``length`` columns of each row."""
        return (torch.arange(columns) >= columns - torch.tensor(lengths)[:, None]).long()

    def _forward(self, input_ids: Tensor, mask: Tensor, layers: list[Layer]) -> tuple[Tensor, list[Layer]]:
        device = self._model.device
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -input_ids.shape[1] :]
        cache = cache_of(layers)
        output = self._model(
            input_ids=input_ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1], layers_of(cache)


def _completion(row: _Row, reason: FinishReason) -> Completion:
    return Completion(row.request.group_id, row.sample_index, tuple(row.ids), tuple(row.logprobs), reason)
