"""What is sent to vLLM's completions endpoint for one sample, and what its answer says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engine import Completion, EngineError, FinishReason, Greedy, GroupRequest

Json = Mapping[str, Any]

TOKEN_PREFIX = "token_id:"  # noqa: S105  # how vLLM writes a token id where OpenAI's format has the token's text
NO_LOGPROB = -9999.0
"""What vLLM writes for minus infinity, which JSON does not have; of a sampled token it can only mean "not known"."""

FINISH_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}


@dataclass(frozen=True)
class Sample:
    """One completion to ask for: ``index`` counts the seeds of its request."""

    request: GroupRequest
    index: int
    max_new_tokens: int

    @property
    def name(self) -> str:
        return f"sample {self.index} of group {self.request.group_id}"


def body_of(sample: Sample, sampling: SamplingConfig | Greedy, eos_ids: frozenset[int], model: str) -> dict[str, Any]:
    """The JSON of one request: the whole distribution at the temperature, nothing of the server's own defaults.

    One request per sample, each with its own seed: ``n = K`` with seed s would use the seeds s..s+K-1, which neighbouring
    requests share. The prompt is computed once all the same (the server caches prefixes).
    """
    return {
        "model": model,
        "prompt": list(sample.request.prompt_token_ids),
        "max_tokens": sample.max_new_tokens,
        "n": 1,
        "seed": sample.request.seeds[sample.index],
        "temperature": sampling.temperature if isinstance(sampling, SamplingConfig) else 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": list(sampling.stop),
        "stop_token_ids": sorted(eos_ids),
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True,
    }


def completion_of(sample: Sample, answer: Json) -> Completion:
    """The completion in an answer: ids as sampled, log-probabilities in nats, NaN where the server does not know one.

    Raises:
        EngineError: the answer is not one completion of this sample with a value per token; names the sample.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        count = len(choices) if isinstance(choices, list) else "no"
        raise EngineError(f"{sample.name}: {count} completions in the answer of vLLM, 1 was asked for")
    choice = choices[0]
    ids = choice.get("token_ids")
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise EngineError(f"{sample.name}: no token ids in the answer of vLLM; it must know return_token_ids (>= 0.11)")
    if len(ids) > sample.max_new_tokens:
        raise EngineError(f"{sample.name}: {len(ids)} tokens, the limit was {sample.max_new_tokens}")
    reason = FINISH_REASONS.get(str(choice.get("finish_reason")))
    if reason is None:
        raise EngineError(
            f"{sample.name}: vLLM says that it finished by {choice.get('finish_reason')!r}; known are {sorted(FINISH_REASONS)}"
        )
    try:
        logprobs = sampled_logprobs(ids, positions_of(choice.get("logprobs") or {}))
    except (ValueError, TypeError) as error:
        if reason != "abort":
            raise EngineError(f"{sample.name}: {error}") from error
        logprobs = None
    return Completion(sample.request.group_id, sample.index, tuple(ids), logprobs, reason)


def positions_of(logprobs: Json) -> list[dict[int, float | None]]:
    """The log-probabilities by token id, a dictionary per position, from the completions endpoint's four lists.

    Raises:
        ValueError: lists of different lengths, or a token that is not given as an id.
    """
    tokens, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    others = logprobs.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(values) == len(others):
        raise ValueError(f"{len(tokens)} tokens, {len(values)} log-probs and {len(others)} alternatives")
    return [
        {**{_token_id(key): value for key, value in (other or {}).items()}, _token_id(token): value}
        for token, value, other in zip(tokens, values, others, strict=True)
    ]


def sampled_logprobs(ids: Sequence[int], positions: Sequence[Mapping[int, float | None]]) -> tuple[float, ...]:
    """The value of each sampled token: looked up by its id, never the first or the best of a position.

    Args:
        ids: the sampled tokens.
        positions: per token, token id -> nats; None or NaN for a value that the server does not know.

    Returns:
        One value per id, NaN where it is not known.

    Raises:
        ValueError: another number of positions than ids, or a position without its sampled token.
    """
    if len(positions) != len(ids):
        raise ValueError(f"{len(positions)} log-probs for {len(ids)} tokens")
    found = []
    for number, (token, values) in enumerate(zip(ids, positions, strict=True)):
        if token not in values:
            raise ValueError(f"position {number} has log-probs of {sorted(values)}, not of the sampled token {token}")
        value = values[token]
        is_known = value is not None and math.isfinite(value) and value > NO_LOGPROB
        found.append(float(value) if value is not None and is_known else math.nan)
    return tuple(found)


def _token_id(text: str) -> int:
    if not text.startswith(TOKEN_PREFIX):
        raise ValueError(f"token {text!r} is not given by its id; vLLM must know return_tokens_as_token_ids")
    return int(text.removeprefix(TOKEN_PREFIX))
