"""What an engine is asked, what it answers, and the check that both fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tasks.rollout.config import SamplingConfig

FinishReason = Literal["stop", "length", "abort"]
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Greedy:
    """Take the most likely token each time; for evaluation only."""

    max_new_tokens: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupRequest:
    """One prompt and the seeds of its samples: as many samples as seeds, all seeds of a run distinct.

    ``max_new_tokens``: a limit of its own, where that is below the sampling's (the prompt holds the beginning of an answer).
    """

    group_id: str
    prompt_id: str
    prompt_token_ids: tuple[int, ...]
    answer: str
    seeds: tuple[int, ...]
    max_new_tokens: int | None = None

    def limit(self, max_new_tokens: int) -> int:
        """The tokens that each sample may have when sampling allows ``max_new_tokens``."""
        return max_new_tokens if self.max_new_tokens is None else min(max_new_tokens, self.max_new_tokens)


@dataclass(frozen=True)
class Completion:
    """One sample. ``sampler_logprobs``: nats, one per id, of the distribution sampled from; None when not known.

    finish_reason: "stop" for an end-of-sequence id or a stop string, "length" for the token or context limit, "abort"
    when the engine gave up on it.
    """

    group_id: str
    sample_index: int
    completion_token_ids: tuple[int, ...]
    sampler_logprobs: tuple[float, ...] | None
    finish_reason: FinishReason


@dataclass(frozen=True)
class Skipped:
    """A prompt that the engine can not answer, for example ``prompt_too_long``."""

    group_id: str
    prompt_id: str
    reason: str


@dataclass(frozen=True)
class GenerationResult:
    """``metrics``: what the engine counted and measured meanwhile; no part of the answer."""

    completions: list[Completion]
    skipped: list[Skipped]
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class PolicyWeights:
    """The policy that an engine samples: loaded, and as the checkpoint that it was loaded from.

    ``digest``: of the checkpoint, which names its weights. ``folder`` (the checkpoint) and ``log_folder`` (where a server
    writes its log) may be None for engines that work in this process.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    digest: str = ""
    folder: Path | None = None
    log_folder: Path | None = None


class Engine(Protocol):
    """Samples completions; holds no state that changes an answer between calls."""

    def generate(
        self, requests: Sequence[GroupRequest], sampling: SamplingConfig | Greedy, on_progress: OnProgress
    ) -> GenerationResult: ...


class EngineError(Exception):
    """An engine's answer does not fit what it was asked, or the engine can not go on."""


def check_result(requests: Sequence[GroupRequest], result: GenerationResult) -> None:
    """Every group answered with exactly its samples or listed as skipped, matched by id, never by position.

    Raises:
        EngineError: names the group and sample at fault.
    """
    asked = {(request.group_id, index) for request in requests for index in range(len(request.seeds))}
    skipped = {skip.group_id for skip in result.skipped}
    if unknown := skipped - {request.group_id for request in requests}:
        raise EngineError(f"group {min(unknown)} was skipped but never asked for")
    expected = {key for key in asked if key[0] not in skipped}
    answered = [(completion.group_id, completion.sample_index) for completion in result.completions]
    if len(set(answered)) < len(answered):
        twice = next(key for key in answered if answered.count(key) > 1)
        raise EngineError(f"sample {twice[1]} of group {twice[0]} was answered twice")
    if wrong := expected.symmetric_difference(answered):
        group, sample = min(wrong)
        how = "not answered" if (group, sample) in expected else "answered but not asked for"
        raise EngineError(
            f"sample {sample} of group {group} was {how} ({len(answered)} answers, {len(expected)} expected)"
        )
    for completion in result.completions:
        logprobs = completion.sampler_logprobs
        if logprobs is not None and len(logprobs) != len(completion.completion_token_ids):
            raise EngineError(
                f"sample {completion.sample_index} of group {completion.group_id} has {len(logprobs)} log-probs for "
                f"{len(completion.completion_token_ids)} tokens"
            )
