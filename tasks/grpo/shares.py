"""The sequences of a minibatch, shared out among ranks."""

from collections.abc import Sequence

from tasks.grpo.batch import TokenSequence
from tasks.grpo.packing import num_packed_tokens

Unit = Sequence[TokenSequence]
"""Sequences that stay together: a packed row, or one sequence alone."""


def share_of(units: Sequence[Unit], rank: int, num_ranks: int) -> list[TokenSequence]:
    """The sequences that ``rank`` computes, balanced by tokens.

    The unit with the most tokens goes first, each to the rank that has the fewest so far (the lowest of equal ones; units
    of equal size go by their first row). The result depends on the units alone, not on their order, so that every rank
    finds the same shares without asking the others.

    Args:
        units: of the whole minibatch; a rank may get none of them.

    Raises:
        ValueError: there is no such rank.
    Source: Graham, Bounds on multiprocessing timing anomalies (1969): longest processing time first.
    """
    if not 0 <= rank < num_ranks:
        raise ValueError(f"there is no rank {rank} among {num_ranks}")
    tokens = [0] * num_ranks
    mine: list[TokenSequence] = []
    for unit in sorted(units, key=lambda each: (-num_packed_tokens(each), each[0].row)):
        least = min(range(num_ranks), key=lambda each: (tokens[each], each))
        tokens[least] += num_packed_tokens(unit)
        if least == rank:
            mine += unit
    return mine
