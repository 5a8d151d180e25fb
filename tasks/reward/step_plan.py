"""Which steps of which completions get labels, and the prefixes that have to be continued for them."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.reward.step_kinds import StepsConfig
from tasks.values.seeds import derive_seed
from tasks.verifiers.steps import PrefixLength, cut, token_ends

Row = Mapping[str, Any]
PrefixLengths = Callable[[Sequence[int]], PrefixLength]
"""Token ids of a completion -> characters of the text that its first i tokens make."""


@dataclass(frozen=True)
class Prefix:
    """A prompt and the first tokens of one of its completions, as they were sampled: never text tokenised again."""

    prefix_id: str
    group_id: str
    prompt_id: str
    prompt_token_ids: tuple[int, ...]
    prefix_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Traced:
    """A completion whose steps are labelled.

    ``ends``: the last token of each labelled step. ``prefix_ids``: the prefix to be continued after it, None for the
    completion's last step: nothing follows it, so its label is whether the completion itself is correct.
    """

    completion: Row
    ends: tuple[int, ...]
    prefix_ids: tuple[str | None, ...]


@dataclass(frozen=True)
class Plan:
    """``prefixes`` by id, each once, in the order in which the completions need them."""

    traced: list[Traced]
    prefixes: dict[str, Prefix]
    metrics: dict[str, float]


def plan_steps(completions: Sequence[Row], config: StepsConfig, prefix_lengths: PrefixLengths, *, seed: int) -> Plan:
    """The completions whose steps get labels, and what has to be continued.

    Of ``max_groups`` groups ``completions_per_group`` distinct completions each, those whose hashes of (seed, group) and
    (seed, group, sample) are smallest; a completion without text, or one that the engine gave up on, has no steps and is
    not drawn. Equal prefixes of one group are one prefix.

    Raises:
        ValueError: a (group, sample) comes twice.
    """
    if len({_key(row) for row in completions}) < len(completions):
        raise ValueError("two completions share their (group, sample): the tables are of different runs")
    groups: dict[str, list[Row]] = {}
    for row in completions:
        if row["text"] and row["completion_token_ids"] and row["finish_reason"] != "abort":
            groups.setdefault(row["group_id"], []).append(row)
    traced: list[Traced] = []
    prefixes: dict[str, Prefix] = {}
    num_steps = num_wanted = 0
    drawn = sorted(groups, key=lambda group_id: derive_seed(seed, group_id))[: config.max_groups]
    for group_id in sorted(drawn):
        for row in _drawn(groups[group_id], config.completions_per_group, seed):
            ids = row["completion_token_ids"]
            ends = token_ends(len(ids), cut(row["text"], config.split), prefix_lengths(ids))
            chosen = spaced(ends, config.steps_per_completion)
            needed = [_prefix(row, end) for end in chosen[:-1]]
            prefixes |= {each.prefix_id: each for each in needed}
            traced.append(Traced(row, tuple(chosen), (*(each.prefix_id for each in needed), None)))
            num_steps += len(ends)
            num_wanted += len(needed)
    return Plan(
        traced,
        prefixes,
        {
            "num_groups": float(len(drawn)),
            "num_completions": float(len(traced)),
            "num_without_steps": float(len(completions) - sum(map(len, groups.values()))),
            "num_steps": float(num_steps),
            "num_steps_chosen": float(sum(len(each.ends) for each in traced)),
            "num_prefixes": float(len(prefixes)),
            "num_shared_prefixes": float(num_wanted - len(prefixes)),
        },
    )


def spaced(ends: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of the steps, the last one always, the others evenly spaced from the first one.

    Of K steps those numbered floor(i (K - 1) / (most - 1) + 1/2), i = 0 .. most - 1, from 0; the last alone when ``most``
    is 1. Deterministic: no step is luckier than another in one run and unlucky in the next.
    """
    if most < 1:
        raise ValueError(f"{most} steps can not be chosen; take at least 1")
    if len(ends) <= most:
        return list(ends)
    if most == 1:
        return [ends[-1]]
    gap = (len(ends) - 1) / (most - 1)
    return [ends[math.floor(index * gap + 0.5)] for index in range(most)]


def _drawn(members: Sequence[Row], most: int, seed: int) -> list[Row]:
    """Distinct completions of one group, the first sample of equal ones, the ``most`` with the smallest hashes."""
    distinct: dict[tuple[int, ...], Row] = {}
    for row in sorted(members, key=lambda each: int(each["sample_index"])):
        distinct.setdefault(tuple(row["completion_token_ids"]), row)
    order = sorted(distinct.values(), key=lambda row: derive_seed(seed, *_key(row)))
    return sorted(order[:most], key=lambda row: int(row["sample_index"]))


def _key(row: Row) -> tuple[str, int]:
    return row["group_id"], row["sample_index"]


def _prefix(row: Row, end: int) -> Prefix:
    ids = tuple(row["completion_token_ids"][: end + 1])
    name = f"{row['group_id']}:{','.join(map(str, ids))}"
    prefix_id = hashlib.sha256(name.encode()).hexdigest()[:24]
    return Prefix(prefix_id, row["group_id"], row["prompt_id"], tuple(row["prompt_token_ids"]), ids)
