"""Attention by branches: the scores that the tree mask leaves, and nothing else."""

from types import SimpleNamespace

import pytest
import torch

from tasks.grpo.batch import TokenSequence
from tasks.grpo.layouts import batches_of, layout_for
from tasks.grpo.packing import branched_micro_batches, pack, pack_branches
from tasks.grpo.tree_attention import TREE, attention_of, branches_of, bundled, takes_branches, tree_attention
from tests.conftest import make_gpt2, make_llama

ROWS = [
    [TokenSequence(0, [1, 5, 6], [7, 8, 9, 2]), TokenSequence(1, [1, 5, 6], []), TokenSequence(2, [1, 5, 6], [9, 3])],
    [TokenSequence(3, [1, 4], [3, 3])],
]


def seen(branch):
    return branch.seen(branch.num_queries, branch.num_keys).int().tolist()


def test_a_completion_sees_the_prompt_and_itself_up_to_the_query():
    prompt, first, second = branches_of(2, [3, 0, 1])
    assert (prompt.begin, prompt.end, seen(prompt)) == (0, 2, [[1, 0], [1, 1]])
    assert (first.begin, first.end, first.num_prompt) == (2, 5, 2)
    assert seen(first) == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert (second.begin, second.end, seen(second)) == (5, 6, [[1, 1, 1]])


def test_filling_is_seen_by_no_query_and_sees_everything():
    (prompt,) = branches_of(2, [])
    assert prompt.seen(3, 4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]


def test_bundles_hold_every_position_once_with_its_prompt_and_are_half_full():
    rows = [(0, branches_of(3, [4, 2])), (9, branches_of(2, [2]))]
    found = bundled(rows, torch.float32, "cpu")
    assert [each.queries_BQ.shape for each in found.bundles] == [(1, 4), (3, 3), (1, 2)]
    # scores: 4 x 7 alone; 2 x 5, 3 x 3 and 2 x 4 are no more than twice apart; 2 x 2 alone
    assert found.bundles[0].keys_BK.tolist() == [[0, 1, 2, 3, 4, 5, 6]]
    assert found.bundles[1].keys_BK.tolist() == [[0, 1, 2, 7, 8], [0, 1, 2, 0, 0], [9, 10, 11, 12, 0]]
    assert found.bundles[2].keys_BK.tolist() == [[9, 10]]
    (half,) = bundled([(0, branches_of(2, [2]))], torch.float32, "cpu").bundles  # 2 x 2 is just half of 2 x 4
    assert half.queries_BQ.tolist() == [[2, 3], [0, 1]]
    answers = torch.cat([each.queries_BQ.flatten() for each in found.bundles])
    assert answers[found.places_N].tolist() == list(range(13))


@pytest.mark.parametrize("num_groups", [1, 2])
def test_values_and_gradients_are_those_of_the_dense_tree_mask(num_groups):
    torch.manual_seed(0)
    module = SimpleNamespace(num_key_value_groups=num_groups, is_causal=True, training=False)
    dense, branched = pack(ROWS, "cpu", torch.float64), pack_branches(ROWS, "cpu", torch.float64)
    leaves = [torch.randn(2, heads, 9, 4, dtype=torch.float64) for heads in (2, 2 // num_groups, 2 // num_groups)]
    weights = torch.randn(2, 9, 2, 4, dtype=torch.float64)
    kept = torch.tensor([True] * 9 + [True] * 4 + [False] * 5)  # the second row is filled up

    def in_one_row(each_R):
        return each_R.flatten(0, 1)[kept][None]

    inputs = [leaf.clone().requires_grad_() for leaf in leaves]
    of_mask, _ = tree_attention(module, *inputs, dense.attention_mask_R1TT, scaling=0.5)
    (of_mask * weights).flatten(0, 1)[kept].sum().backward()
    flat = [in_one_row(leaf.transpose(1, 2)).transpose(1, 2).detach().requires_grad_() for leaf in leaves]
    of_branches, _ = tree_attention(
        module, *flat, branched.attention_mask_R1TT, branches=branched.inputs()["branches"], scaling=0.5
    )
    (of_branches * in_one_row(weights)).sum().backward()
    assert (in_one_row(of_mask) - of_branches).abs().max() < 1e-12
    for dense_input, flat_input in zip(inputs, flat, strict=True):
        gradient = in_one_row(dense_input.grad.transpose(1, 2)).transpose(1, 2)
        assert (gradient - flat_input.grad).abs().max() < 1e-12


def test_rows_stand_behind_one_another_without_filling_and_no_square_of_them_is_held():
    batch = pack_branches(ROWS, "cpu", torch.float32)
    assert batch.attention_mask_R1TT.shape == (1, 1, 1, 1)
    assert batch.input_ids_RT.tolist() == [[1, 5, 6, 7, 8, 9, 2, 9, 3, 1, 4, 3, 3]]
    assert batch.position_ids_RT.tolist() == [[0, 1, 2, 3, 4, 5, 6, 3, 4, 0, 1, 2, 3]]
    assert batch.predicting_N.tolist() == [2, 3, 4, 5, 2, 7, 10, 11]
    assert batch.targets_N.tolist() == [7, 8, 9, 2, 9, 3, 3, 3]
    scores = sum(each.mask_B1QK.numel() for each in batch.branches.bundles)
    assert scores == 4 * 7 + 3 * (3 * 5) + 2 * 2 <= 2 * (4 * 7 + 2 * 5 + 3 * 3 + 2 * 4 + 2 * 2)


def test_micro_batches_of_branches_count_tokens_and_no_filling():
    sequences = [TokenSequence(row, [4 + row], [5] * length) for row, length in enumerate((9, 4, 3, 2))]
    found = branched_micro_batches(sequences, 15)
    assert [[each.row for row in batch for each in row] for batch in found] == [[0, 1], [2, 3]]  # 10 + 5, 4 + 3
    found = branched_micro_batches(sequences, 11)
    assert [[each.row for row in batch for each in row] for batch in found] == [[0], [1, 2], [3]]  # 10, 5 + 4, 3
    assert [len(batch) for batch in branched_micro_batches(sequences, 1)] == [1, 1, 1, 1]


@pytest.mark.parametrize("make", [make_llama, make_gpt2])
def test_a_model_of_pytorchs_attention_gets_the_branches(make):
    model = make()
    assert attention_of(model) == "sdpa"
    assert layout_for(model, "packed") == "packed"
    assert takes_branches(model)
    (batch,) = batches_of("packed", model, ROWS[0], 100)
    assert sorted(each.queries_BQ.shape[0] for each in batch.branches.bundles) == [1, 2]


def test_without_branches_the_attention_is_pytorchs_own_to_the_last_bit():
    plain, tree = make_llama(), make_llama()
    tree.set_attn_implementation(TREE)
    ids, mask = torch.tensor([[1, 5, 6, 7], [1, 4, 4, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.no_grad():
        assert torch.equal(plain(input_ids=ids).logits, tree(input_ids=ids).logits)
        of_mask = [each(input_ids=ids, attention_mask=mask).logits for each in (plain, tree)]
        assert torch.equal(*of_mask)
        sampled = [each.generate(ids[:1], max_new_tokens=8, do_sample=False) for each in (plain, tree)]
    assert torch.equal(*sampled)


def test_the_saved_settings_do_not_name_the_attention(tmp_path):
    plain, tree = make_llama(), make_llama()
    layout_for(tree, "packed")
    for name, model in (("plain", plain), ("tree", tree)):
        model.save_pretrained(tmp_path / name)
    assert (tmp_path / "plain" / "config.json").read_text() == (tmp_path / "tree" / "config.json").read_text()


def test_a_model_that_computes_its_attention_itself_keeps_the_dense_mask():
    model = make_llama(attn_implementation="eager")
    assert layout_for(model, "packed") == "packed"
    assert not takes_branches(model)


def test_a_model_that_takes_no_branches_keeps_the_dense_mask_and_its_attention(monkeypatch):
    model = make_llama()
    forward = model.model.forward

    def refusing(**inputs):
        if "branches" in inputs:
            raise TypeError("forward() got an unexpected keyword argument 'branches'")
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", refusing)
    assert layout_for(model, "packed") == "packed"
    assert attention_of(model) == "sdpa"
