"""From a selection of prompts to rows of the completions table."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from tasks.rollout.engine import Completion, GenerationResult, GroupRequest, check_result
from tasks.rollout.prompting import decode_completion
from tasks.values.seeds import derive_seed

log = logging.getLogger(__name__)

Row = Mapping[str, Any]


def requests_for(
    selection: Sequence[Row], *, num_samples: int, seed_parts: tuple[int | str, ...]
) -> list[GroupRequest]:
    """One request per selected prompt; each sample's seed is hashed from (seed_parts, group id, sample index)."""
    return [
        GroupRequest(
            group_id=row["group_id"],
            prompt_id=row["prompt_id"],
            prompt_token_ids=tuple(row["prompt_token_ids"]),
            answer=row["answer"],
            seeds=tuple(derive_seed(*seed_parts, row["group_id"], index) for index in range(num_samples)),
        )
        for row in selection
    ]


def completion_rows(
    requests: Sequence[GroupRequest],
    result: GenerationResult,
    *,
    tokenizer: PreTrainedTokenizerBase,
    eos_ids: frozenset[int],
    temperature: float,
    policy_digest: str,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the completions table in the order of ``requests``, and their counts.

    ``is_truncated`` says that the limit cut the completion: one that reached the limit with an end-of-sequence id as
    its last token had finished by itself.
    """
    check_result(requests, result)
    by_group = {request.group_id: request for request in requests}
    order = {request.group_id: position for position, request in enumerate(requests)}
    rows = []
    for completion in sorted(result.completions, key=lambda each: (order[each.group_id], each.sample_index)):
        request = by_group[completion.group_id]
        ids = completion.completion_token_ids
        rows.append(
            {
                "group_id": completion.group_id,
                "prompt_id": request.prompt_id,
                "sample_index": completion.sample_index,
                "prompt_token_ids": list(request.prompt_token_ids),
                "completion_token_ids": list(ids),
                "sampler_logprobs": None if completion.sampler_logprobs is None else list(completion.sampler_logprobs),
                "finish_reason": completion.finish_reason,
                "is_truncated": completion.finish_reason == "length" and not (ids and ids[-1] in eos_ids),
                "text": decode_completion(tokenizer, ids, eos_ids),
                "seed": request.seeds[completion.sample_index],
                "temperature": temperature,
                "policy_digest": policy_digest,
            }
        )
    return rows, {**_metrics(rows, result, temperature), **result.metrics}


def _metrics(rows: Sequence[Row], result: GenerationResult, temperature: float) -> dict[str, float]:
    for skip in result.skipped:
        log.warning("prompt %s was skipped: %s", skip.prompt_id, skip.reason)
    tokens = sum(len(row["completion_token_ids"]) for row in rows)
    metrics = {
        "num_completions": float(len(rows)),
        "num_skipped_prompts": float(len(result.skipped)),
        "num_truncated": float(sum(row["is_truncated"] for row in rows)),
        "num_aborted": float(sum(row["finish_reason"] == "abort" for row in rows)),
        "num_completion_tokens": float(tokens),
    }
    if rows:
        metrics["mean_completion_tokens"] = tokens / len(rows)
    if temperature > 0:
        metrics["num_identical_groups"] = float(_num_identical_groups(result.completions))
        if rows and metrics["num_identical_groups"] == len({row["group_id"] for row in rows}):
            log.warning("in every group all completions are the same: nothing can be learnt from them")
    return metrics


def _num_identical_groups(completions: Sequence[Completion]) -> int:
    groups: dict[str, list[tuple[int, ...]]] = {}
    for completion in completions:
        groups.setdefault(completion.group_id, []).append(completion.completion_token_ids)
    return sum(len(members) > 1 and len(set(members)) == 1 for members in groups.values())
