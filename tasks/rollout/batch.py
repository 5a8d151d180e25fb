"""The rows that are decoded together: prompts enter, finished rows leave, the cache stays full."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.rollout.cache import RowCache
from tasks.rollout.engine import GroupRequest

MAX_PREFILL_TOKENS = 4096
"""Prompt tokens read in one forward pass, unless one prompt alone is longer: bounds the memory of its activations."""


@dataclass(eq=False)
class Row:
    """One completion under way."""

    request: GroupRequest
    sample_index: int
    max_new_tokens: int
    uniforms: list[float]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    length: int = field(init=False)
    """Tokens of the row, the newest included, which is not in the cache yet."""

    def __post_init__(self) -> None:
        self.length = len(self.request.prompt_token_ids)


@dataclass
class _Open:
    """A prompt in the cache whose samples have not all entered: its next logits, and the samples that wait."""

    length: int
    logits_1V: Tensor
    waiting: list[Row]


class Batch:
    """Rows and their cache. The newest token of every row stands in the same column, the last one.

    Row ``num_rows`` of the cache, one past those decoded, holds the prompt of the group that is only partly in.
    """

    def __init__(self, model: PreTrainedModel, num_rows: int, num_columns: int) -> None:
        self._model = model
        self._num_rows = num_rows
        self._cache = RowCache(model.config, num_rows + 1, num_columns)
        self._end = 0
        self._open: _Open | None = None
        self.rows: list[Row] = []

    @property
    def room(self) -> int:
        return self._num_rows - len(self.rows)

    def admit(self, groups: Sequence[Sequence[Row]]) -> tuple[list[Row], Tensor]:
        """Read each group's prompt once and let its rows enter while there is room; the last group's rest waits.

        Gives the rows that entered and their next logits [B, V].
        """
        assert 0 < len(groups) <= self.room
        prompts = [group[0].request.prompt_token_ids for group in groups]
        logits_GV = self._read(prompts)
        # The first row of each group stands where its prompt was read; the others follow with a copy of its columns.
        first, entered, sources = len(self.rows), [group[0] for group in groups], list(range(len(groups)))
        for position, group in enumerate(groups):
            last = 1 + self.room - len(entered)
            entered += group[1:last]
            sources += [position] * len(group[1:last])
            if waiting := list(group[last:]):
                assert not self.has_waiting  # only the last group can be cut
                length = len(prompts[position])
                self._open = _Open(length, logits_GV[position : position + 1].clone(), waiting)
                self._cache.copy([first + position], self._end, [self._num_rows], length, length)
        copied = range(len(groups), len(entered))
        origins = [first + sources[index] for index in copied]
        self._cache.copy(origins, self._end, [first + index for index in copied], self._end, max(map(len, prompts)))
        self.rows += entered
        return entered, logits_GV[torch.tensor(sources, device=logits_GV.device)]

    @property
    def has_waiting(self) -> bool:
        """Whether a prompt that was read has samples that have not entered."""
        return self._open is not None

    def admit_waiting(self) -> tuple[list[Row], Tensor]:
        """As ``admit``, for the samples that wait beside a prompt that was read: no forward pass."""
        assert self._open is not None
        group, first = self._open, len(self.rows)
        entered, group.waiting = group.waiting[: self.room], group.waiting[self.room :]
        self._reach(group.length)
        targets = [first + index for index in range(len(entered))]
        self._cache.copy([self._num_rows] * len(entered), group.length, targets, self._end, group.length)
        self.rows += entered
        if not group.waiting:
            self._open = None
        return entered, group.logits_1V.repeat(len(entered), 1)

    def decode(self) -> Tensor:
        """Read every row's newest token; gives the next logits [B, V]."""
        lengths = [row.length for row in self.rows]
        if self._end == self._cache.num_columns:
            self._move(max(lengths) - 1)
        self._end += 1
        self._cache.look_at(slice(0, len(self.rows)), self._end - max(lengths), self._end - 1, self._end)
        return self._forward(torch.tensor([[row.ids[-1]] for row in self.rows]), lengths)

    def remove(self, finished: Sequence[Row]) -> None:
        """Drop rows; the last of those that stay move into their places."""
        gone = sorted(map(self.rows.index, finished))
        num_kept = len(self.rows) - len(gone)
        holes = [index for index in gone if index < num_kept]
        movers = sorted(set(range(num_kept, len(self.rows))).difference(gone))
        if movers:
            length = max(self.rows[index].length for index in movers) - 1
            self._cache.copy(movers, self._end, holes, self._end, length)
        for hole, mover in zip(holes, movers, strict=True):
            self.rows[hole] = self.rows[mover]
        del self.rows[num_kept:]

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """Prefill the prompts in the rows after those under way; gives their next logits [G, V]."""
        lengths = [len(prompt) for prompt in prompts]
        longest, first = max(lengths), len(self.rows)
        self._reach(longest)
        input_ids_GT = torch.zeros(len(prompts), longest, dtype=torch.long)
        for position, prompt in enumerate(prompts):
            input_ids_GT[position, longest - len(prompt) :] = torch.tensor(prompt)
        oldest = self._end - longest
        self._cache.look_at(slice(first, first + len(prompts)), oldest, oldest, self._end)
        return self._forward(input_ids_GT, lengths)

    def _reach(self, length: int) -> None:
        """See to it that a prompt of ``length`` tokens fits before the last column."""
        if not self.rows:
            self._end = length
        elif self._end < length:
            self._move(length)

    def _move(self, end: int) -> None:
        """Move all rows, so that their last column is the one before ``end``."""
        everybody = range(len(self.rows))
        length = max(row.length for row in self.rows) - 1
        self._cache.copy(everybody, self._end, everybody, end, length)
        self._end = end

    def _forward(self, input_ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """The logits [B, V] after the last column; row b has tokens in the last lengths[b] columns of the window."""
        device, window = self._model.device, self._cache.window
        columns = window.end - window.oldest
        beginnings_B1 = columns - torch.tensor(lengths)[:, None]
        numbers_T = torch.arange(columns)
        positions = (numbers_T[window.newest - window.oldest :] - beginnings_B1).clamp(min=0)
        output = self._model(
            input_ids=input_ids.to(device),
            attention_mask=(numbers_T >= beginnings_B1).to(device),
            position_ids=positions.to(device),
            cache=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits
