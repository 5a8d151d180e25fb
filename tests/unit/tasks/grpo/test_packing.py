"""Packed rows: the same log-probabilities and gradients as padded ones, with the prompt once."""

import logging
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import MistralConfig, MistralForCausalLM

from tasks.grpo import packing
from tasks.grpo.batch import TokenSequence
from tasks.grpo.config import UpdateConfig
from tasks.grpo.layouts import batches_of, layout_for, sliding_window
from tasks.grpo.logprobs import completion_logprobs
from tasks.grpo.packing import num_packed_tokens, pack, packed_micro_batches, packed_rows, tree_mask
from tasks.grpo.presets import PRESETS
from tasks.grpo.trainer import PolicyTrainer
from tests.conftest import make_gpt2, make_llama
from tests.unit.tasks.grpo.tiny_models import MODELS, NEEDED, PROMPT, made, samples

SEQUENCES = [
    TokenSequence(0, PROMPT, [7, 8, 9, 2]),
    TokenSequence(1, PROMPT, [9]),
    TokenSequence(2, [1, 4], [3, 3, 8, 5, 2]),
    TokenSequence(3, PROMPT, [7, 8, 4, 4, 4, 2]),
]


def by_row(model, layout, sequences=SEQUENCES, max_tokens=10_000):
    found = {}
    for batch in batches_of(layout, model, sequences, max_tokens):
        logprobs_BC = completion_logprobs(model, batch, torch.ones(len(batch.rows))).logprobs_BC
        for position, row in enumerate(batch.rows):
            found[row] = logprobs_BC[position, : int(batch.lengths_B[position])]
    return found


def test_the_mask_lets_a_token_see_the_prompt_and_its_own_completion_so_far():
    mask_TT = tree_mask(torch.tensor([[0, 0, 1, 1, 2, -1]]), torch.float32)[0]
    seen = [[q for q in range(6) if mask_TT[row, q] == 0] for row in range(6)]
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 4], [5]]
    assert set(mask_TT.unique().tolist()) == {0.0, torch.finfo(torch.float32).min}


def test_a_packed_row_holds_the_prompt_once_and_counts_positions_from_it_again():
    batch = pack([[SEQUENCES[0], SEQUENCES[1]]], "cpu", torch.float32)
    assert batch.input_ids_RT.tolist() == [[1, 5, 6, 7, 8, 9, 2, 9]]
    assert batch.position_ids_RT.tolist() == [[0, 1, 2, 3, 4, 5, 6, 3]]
    assert batch.predicting_N.tolist() == [2, 3, 4, 5, 2]
    assert batch.targets_N.tolist() == [7, 8, 9, 2, 9]
    assert batch.lengths_B.tolist() == [4, 1]


@pytest.mark.parametrize("family", MODELS)
def test_packed_log_probabilities_and_gradients_are_the_padded_ones(family):
    values, gradients = [], []
    for layout in ("packed", "padded"):
        model = MODELS[family]()
        found = by_row(model, layout)
        # Weights that differ by row and token: a swap of two would show.
        total = sum(
            (row + 1) * (logprobs_T * torch.arange(1, len(logprobs_T) + 1)).sum() for row, logprobs_T in found.items()
        )
        total.backward()
        values.append(torch.cat([found[row] for row in sorted(found)]).detach())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert (values[0] - values[1]).abs().max() < 1e-5
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[1].norm()


@pytest.mark.parametrize("family", MODELS)
def test_every_family_is_found_to_take_packed_rows(family):
    assert layout_for(MODELS[family](), "packed") == "packed"
    assert layout_for(MODELS[family](), "padded") == "padded"


def first_gradient(preset, layout, reference=None):
    settings = {"algorithm": preset, "optimiser": {"learning_rate": 1e-2, "max_grad_norm": 1e9}, "layout": layout}
    kl = "none" if reference is None else {"placement": "loss", "beta": 0.5}
    config = UpdateConfig.model_validate({**settings, "kl": kl, **NEEDED.get(preset, {})})
    trainer = PolicyTrainer(make_llama(), config)
    assert trainer.layout == layout
    trainer.update(samples(), reference=reference, max_new_tokens=12, seed=3, on_progress=lambda done, total: None)
    moments = [state["exp_avg"].flatten() for state in trainer.optimiser._adamw.state.values()]
    return torch.cat(moments) / (1 - 0.9)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_the_same_gradient_in_both_layouts(preset):
    packed, padded = (first_gradient(preset, layout) for layout in ("packed", "padded"))
    assert padded.norm() > 1e-3
    assert (packed - padded).norm() < 1e-5 * padded.norm()


def test_the_kl_to_a_reference_has_the_same_gradient_in_both_layouts():
    packed, padded = (first_gradient("grpo", layout, make_llama(seed=1)) for layout in ("packed", "padded"))
    assert (packed - padded).norm() < 1e-5 * padded.norm()


def test_the_cut_into_rows_and_batches_changes_no_log_probability(monkeypatch):
    model = make_llama()
    with torch.no_grad():
        whole = by_row(model, "packed")
        monkeypatch.setattr(packing, "MAX_ROW_TOKENS", 8)
        cut = by_row(model, "packed", max_tokens=9)
    assert sorted(whole) == sorted(cut) == [0, 1, 2, 3]
    for row, logprobs_T in whole.items():
        assert (logprobs_T - cut[row]).abs().max() < 1e-5


class TestSlidingWindow:
    def model(self):
        return made(MistralConfig, MistralForCausalLM, sliding_window=6, attn_implementation="eager")

    def test_a_sequence_longer_than_the_window_is_padded_and_keeps_its_log_probabilities(self):
        model = self.model()
        long = TokenSequence(4, PROMPT, [7, 8, 4, 4, 4, 2, 9, 9, 3])
        with torch.no_grad():
            mixed, padded = by_row(model, "packed", [*SEQUENCES, long]), by_row(model, "padded", [*SEQUENCES, long])
        assert sorted(mixed) == [0, 1, 2, 3, 4]
        for row, logprobs_T in padded.items():
            assert (logprobs_T - mixed[row]).abs().max() < 1e-5

    def test_the_window_of_a_model_that_does_not_use_it_does_not_count(self):
        assert sliding_window(self.model().config) == 6
        assert sliding_window(SimpleNamespace(use_sliding_window=False, sliding_window=4)) is None
        assert sliding_window(make_llama().config) is None


class TestFallback:
    def test_a_model_that_ignores_the_positions_is_padded_and_says_so(self, monkeypatch, caplog):
        model = make_gpt2()
        forward = model.transformer.forward
        monkeypatch.setattr(model.transformer, "forward", lambda **inputs: forward(**{**inputs, "position_ids": None}))
        with caplog.at_level(logging.WARNING):
            assert layout_for(model, "packed") == "padded"
        assert "GPT2LMHeadModel gives packed rows other log-probabilities" in caplog.text

    def test_a_model_that_ignores_the_mask_is_padded(self, monkeypatch):
        model = make_llama()
        forward = model.model.forward
        monkeypatch.setattr(
            model.model, "forward", lambda branches=None, **inputs: forward(**{**inputs, "attention_mask": None})
        )
        assert layout_for(model, "packed") == "padded"

    def test_a_model_that_refuses_such_a_mask_is_padded_and_says_why(self, monkeypatch, caplog):
        model = make_llama()
        forward = model.model.forward

        def refusing(**inputs):
            if inputs["attention_mask"].ndim == 4:
                raise ValueError("masks have two dimensions here")
            return forward(**inputs)

        monkeypatch.setattr(model.model, "forward", refusing)
        with caplog.at_level(logging.WARNING):
            assert layout_for(model, "packed") == "padded"
        assert "masks have two dimensions here" in caplog.text


def test_a_prompt_without_tokens_and_two_prompts_in_a_row_are_refused():
    with pytest.raises(ValueError, match="no tokens"):
        pack([[TokenSequence(0, [], [4])]], "cpu", torch.float32)
    with pytest.raises(ValueError, match="rows 0 and 2 have different prompts"):
        pack([[SEQUENCES[0], SEQUENCES[2]]], "cpu", torch.float32)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40)), min_size=1, max_size=30),
    st.integers(1, 120),
)
def test_packing_loses_nobody_shares_only_equal_prompts_and_keeps_to_the_budget(shapes, budget):
    sequences = [
        TokenSequence(row, [4 + row % 2] * prompt, [5] * length) for row, (prompt, length) in enumerate(shapes)
    ]
    batches = packed_micro_batches(sequences, budget)
    assert sorted(each.row for batch in batches for row in batch for each in row) == list(range(len(shapes)))
    for batch in batches:
        for row in batch:
            assert len({tuple(each.prompt_token_ids) for each in row}) == 1
            assert len(row) == 1 or num_packed_tokens(row) <= budget
        assert len(batch) == 1 or len(batch) * max(map(num_packed_tokens, batch)) <= budget


def test_a_group_of_eight_costs_its_prompt_once():
    sequences = [TokenSequence(row, [4] * 40, [5] * (16 + 11 * row)) for row in range(8)]
    assert [num_packed_tokens(row) for row in packed_rows(sequences, 10_000)] == [
        40 + sum(16 + 11 * row for row in range(8))
    ]
