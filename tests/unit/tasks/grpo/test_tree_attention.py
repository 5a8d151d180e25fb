"""Attention by branches: the scores that the tree mask leaves, and nothing else."""

from types import SimpleNamespace

import pytest
import torch

from tasks.grpo.batch import TokenSequence
from tasks.grpo.layouts import batches_of, layout_for
from tasks.grpo.packing import pack, pack_branches
from tasks.grpo.tree_attention import TREE, attention_of, branches_of, takes_branches, tree_attention
from tests.conftest import make_gpt2, make_llama

ROWS = [
    [TokenSequence(0, [1, 5, 6], [7, 8, 9, 2]), TokenSequence(1, [1, 5, 6], []), TokenSequence(2, [1, 5, 6], [9, 3])],
    [TokenSequence(3, [1, 4], [3, 3])],
]


def seen(branch):
    return (branch.mask_11QK[0, 0] == 0).int().tolist()


def test_a_completion_sees_the_prompt_and_itself_up_to_the_query():
    prompt, first, second = branches_of(2, [3, 0, 1], torch.float32, "cpu")
    assert (prompt.begin, prompt.end, prompt.mask_11QK) == (0, 2, None)
    assert (first.begin, first.end, first.num_prompt) == (2, 5, 2)
    assert seen(first) == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert (second.begin, second.end, seen(second)) == (5, 6, [[1, 1, 1]])


@pytest.mark.parametrize("num_groups", [1, 2])
def test_values_and_gradients_are_those_of_the_dense_tree_mask(num_groups):
    torch.manual_seed(0)
    module = SimpleNamespace(num_key_value_groups=num_groups, is_causal=True, training=False)
    dense, branched = pack(ROWS, "cpu", torch.float64), pack_branches(ROWS, "cpu", torch.float64)
    found = []
    leaves = [torch.randn(2, heads, 9, 4, dtype=torch.float64) for heads in (2, 2 // num_groups, 2 // num_groups)]
    weights = torch.randn(2, 9, 2, 4, dtype=torch.float64)
    weights[1, 4:] = 0  # filling
    for batch in (dense, branched):
        inputs = [leaf.clone().requires_grad_() for leaf in leaves]
        mask, branches = batch.attention_mask_R1TT, batch.inputs().get("branches")
        output, _ = tree_attention(module, *inputs, mask, branches=branches, scaling=0.5)
        (output * weights).sum().backward()
        found.append((output * (weights != 0), *(each.grad for each in inputs)))
    for of_mask, of_branches in zip(*found, strict=True):
        assert (of_mask - of_branches).abs().max() < 1e-12


def test_no_square_of_the_row_is_held():
    batch = pack_branches(ROWS, "cpu", torch.float32)
    assert batch.attention_mask_R1TT.shape == (1, 1, 1, 1)
    assert sum(0 if each.mask_11QK is None else each.mask_11QK.numel() for each in batch.branches[0]) == 4 * 7 + 2 * 5


@pytest.mark.parametrize("make", [make_llama, make_gpt2])
def test_a_model_of_pytorchs_attention_gets_the_branches(make):
    model = make()
    assert attention_of(model) == "sdpa"
    assert layout_for(model, "packed") == "packed"
    assert takes_branches(model)
    (batch,) = batches_of("packed", model, ROWS[0], 100)
    assert [(each.begin, each.end) for each in batch.branches[0]] == [(0, 3), (3, 7), (7, 9)]


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
