"""Finish completions from the end of a step: what the engine is asked, and what the verifier sees of its answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.reward.step_plan import Plan
from tasks.rollout.engine import GroupRequest
from tasks.values.seeds import derive_seed
from tasks.verifiers.verdict import ScoreItem

Row = Mapping[str, Any]
Decode = Callable[[Sequence[int]], str]


def continuation_requests(
    plan: Plan, prompts: Mapping[str, Row], *, num_samples: int, max_new_tokens: int, seed: int
) -> list[GroupRequest]:
    """One request per prefix: its ids are the prompt's and the prefix's, its limit what the prefix leaves of the budget.

    A sample's seed is hashed from (seed, prefix, index), so neither the order nor the number of prefixes changes it.

    Args:
        prompts: rows of the prompts table by prompt id.
        max_new_tokens: of a whole completion.
    """
    return [
        GroupRequest(
            group_id=prefix.prefix_id,
            prompt_id=prefix.prompt_id,
            prompt_token_ids=(*prefix.prompt_token_ids, *prefix.prefix_token_ids),
            answer=prompts[prefix.prompt_id]["answer"],
            seeds=tuple(derive_seed(seed, prefix.prefix_id, index) for index in range(num_samples)),
            max_new_tokens=max_new_tokens - len(prefix.prefix_token_ids),
        )
        for prefix in plan.prefixes.values()
        if len(prefix.prefix_token_ids) < max_new_tokens
    ]


def continuation_items(
    plan: Plan, continuations: Sequence[Row], prompts: Mapping[str, Row], decode: Decode
) -> list[ScoreItem]:
    """What the verifiers see of each continuation: the whole completion, prefix and continuation decoded at once.

    Args:
        continuations: rows of a completions table whose groups are prefixes.
        decode: ids of a completion to its text; texts of two id lists can not be joined, a character may stand in both.
    """
    items = []
    for row in continuations:
        prefix = plan.prefixes[row["group_id"]]
        prompt = prompts[prefix.prompt_id]
        items.append(
            ScoreItem(
                prompt=prompt["prompt"],
                answer=prompt["answer"],
                completion=decode([*prefix.prefix_token_ids, *row["completion_token_ids"]]),
                metadata=json.loads(prompt["metadata"]),
                is_truncated=row["is_truncated"],
            )
        )
    return items
