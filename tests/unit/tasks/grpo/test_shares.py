"""Sequences shared out among ranks: by hand, and laws over any units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.grpo.batch import TokenSequence
from tasks.grpo.layouts import UNITS
from tasks.grpo.shares import share_of


def alone(row, num_tokens):
    return [TokenSequence(row, [1], [2] * (num_tokens - 1))]


def rows(units, rank, num_ranks):
    return [sequence.row for sequence in share_of(units, rank, num_ranks)]


def test_the_longest_goes_first_each_to_the_rank_with_the_fewest_tokens():
    units = [alone(row, tokens) for row, tokens in enumerate([3, 9, 5, 4, 7])]
    # 9 -> rank 0; 7 -> rank 1; 5 -> rank 1 (7 < 9); 4 -> rank 0 (9 < 12); 3 -> rank 1 (12 < 13)
    assert rows(units, 0, 2) == [1, 3]
    assert rows(units, 1, 2) == [4, 2, 0]


def test_equal_units_go_by_row_and_equal_ranks_by_number():
    units = [alone(row, 5) for row in (8, 2, 6, 4)]
    assert rows(units, 0, 3) == [2, 8]
    assert rows(units, 1, 3) == [4]
    assert rows(units, 2, 3) == [6]


def test_a_packed_row_stays_together_and_counts_its_prompt_once():
    together = [TokenSequence(row, [1, 2, 3], [4, 5]) for row in (0, 1)]  # 3 + 2 + 2 = 7 tokens
    units = [together, alone(2, 6), alone(3, 4)]
    assert rows(units, 0, 2) == [0, 1]
    assert rows(units, 1, 2) == [2, 3]  # 6 < 7; two prompts in the packed row would make it 10 and give it 3 as well


def test_with_fewer_units_than_ranks_the_last_ranks_have_nothing():
    assert [rows([alone(0, 3)], rank, 3) for rank in range(3)] == [[0], [], []]
    assert rows([], 0, 2) == []


@pytest.mark.parametrize(("rank", "num_ranks"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_is_not_there_is_refused(rank, num_ranks):
    with pytest.raises(ValueError, match=f"no rank {rank} among {num_ranks}"):
        share_of([], rank, num_ranks)


def test_the_units_of_a_layout_are_packed_rows_or_single_sequences():
    sequences = [TokenSequence(0, [1], [2, 3]), TokenSequence(1, [9], [2]), TokenSequence(2, [1], [4])]
    found = {layout: [[each.row for each in unit] for unit in cut(sequences, 100)] for layout, cut in UNITS.items()}
    assert found == {"packed": [[0, 2], [1]], "padded": [[0], [1], [2]]}


@given(st.lists(st.integers(2, 40), max_size=20), st.integers(1, 5), st.randoms(use_true_random=False))
def test_every_sequence_is_shared_once_and_no_rank_has_more_than_a_unit_above_another(lengths, num_ranks, random):
    units = [alone(row, tokens) for row, tokens in enumerate(lengths)]
    parts = [share_of(units, rank, num_ranks) for rank in range(num_ranks)]
    assert sorted(each.row for part in parts for each in part) == list(range(len(lengths)))
    tokens = [sum(each.num_tokens for each in part) for part in parts]
    assert max(tokens) - min(tokens) <= max(lengths, default=0)
    random.shuffle(units)
    assert [share_of(units, rank, num_ranks) for rank in range(num_ranks)] == parts
