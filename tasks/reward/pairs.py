"""Preference pairs: within a group, a completion that the verifier prefers over another."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tasks.reward.config import PairsConfig
from tasks.reward.encoding import sequence_ids
from tasks.reward.examples import Example, Judged, at_the_end
from tasks.reward.labels import Row, Scored, distinct, key_columns, scored_groups
from tasks.reward.losses import bradley_terry
from tasks.values.seeds import derive_seed

SIDES = ("chosen_token_ids", "rejected_token_ids")


def pairs_from_rows(
    completions: Sequence[Row],
    rewards: Sequence[Row],
    prompt_keys: Mapping[str, str],
    config: PairsConfig,
    *,
    source: str,
    origin_iteration: int,
    seed: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the pairs table: within each group, a completion with a higher reward of ``source`` over one with a lower.

    Ties and differences below ``min_margin`` make no pair; rows that the source did not score take no part; of equal
    completions with equal rewards one is kept; equal completions with different rewards are all dropped (the scorer
    contradicts itself). At most ``max_pairs_per_group`` pairs per group, chosen by hash of (seed, pair).

    Raises:
        ValueError: a (group, sample) comes twice in a table, has a reward but no completion, or has a reward that is
            not a finite number.
    """
    groups = scored_groups(completions, rewards, f"{source}_reward")
    pairs: list[dict[str, Any]] = []
    contradicting = 0
    over_cap = 0
    for group_id in sorted(groups):
        members, dropped = distinct(groups[group_id])
        contradicting += dropped
        candidates = [
            _pair(better, worse, prompt_keys, origin_iteration)
            for better, worse in itertools.permutations(members, 2)
            # 0.35 - 0.3 is 0.04999999999999999: the binary noise goes first.
            if round(better[1] - worse[1], 9) >= config.min_margin
        ]
        candidates.sort(key=lambda pair: derive_seed(seed, pair["label_id"]))
        pairs.extend(candidates[: config.max_pairs_per_group])
        over_cap += max(0, len(candidates) - config.max_pairs_per_group)
    return pairs, {
        "num_labels": float(len(pairs)),
        "num_groups": float(len(groups)),
        "num_contradicting_completions": float(contradicting),
        "num_unscored": float(len(rewards) - sum(map(len, groups.values()))),
        "num_labels_over_cap": float(over_cap),
    }


def _pair(better: Scored, worse: Scored, prompt_keys: Mapping[str, str], origin_iteration: int) -> dict[str, Any]:
    (chosen, chosen_reward), (rejected, rejected_reward) = better, worse
    samples = (chosen["sample_index"], rejected["sample_index"])
    return {
        **key_columns(chosen, samples, prompt_keys, origin_iteration),
        "chosen_token_ids": chosen["completion_token_ids"],
        "rejected_token_ids": rejected["completion_token_ids"],
        "chosen_reward": chosen_reward,
        "rejected_reward": rejected_reward,
    }


def pair_example(row: Row, max_tokens: int) -> Example | None:
    """Both sides read at their ends; None when the cut at ``max_tokens`` made them equal: such a pair would only raise the
    loss by ln 2."""
    chosen, rejected = (sequence_ids(row["prompt_token_ids"], row[side], max_tokens) for side in SIDES)
    if chosen == rejected:
        return None
    return Example(
        label_id=row["label_id"],
        sequences=(chosen, rejected),
        positions=at_the_end((chosen, rejected)),
        targets=(1.0,),
        num_tokens=(len(chosen) - len(row["prompt_token_ids"]), len(rejected) - len(row["prompt_token_ids"])),
    )


def pair_loss(scores_N: Tensor, targets_B: Tensor, *, denominator: float) -> Tensor:
    """``bradley_terry`` of scores [2 B] that stand as chosen, rejected, chosen, rejected, ...; the chosen side always won.

    Source: Ouyang et al., arXiv:2203.02155, eq. 1.
    """
    assert bool((targets_B == 1).all())
    scores_B2 = scores_N.view(len(targets_B), 2)
    return bradley_terry(scores_B2[:, 0], scores_B2[:, 1], denominator=denominator)


def judge_pair(example: Example, scores: Sequence[float]) -> Judged:
    """Both orders of the pair, each with its outcome: which side is written down first says nothing."""
    margin = scores[0] - scores[1]
    return Judged(
        logits=(margin, -margin),
        targets=(1.0, 0.0),
        scores=(scores[0], scores[1]),
        labels=(1.0, 0.0),
        lengths=example.num_tokens,
    )
