"""Two ranks of gloo make the update that one process makes: loss, gradient norm, weights, optimiser states."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tasks.grpo.collective import ALONE
from tasks.grpo.sharded import blocks, whole_weights
from tasks.runtime.launching import run_in_ranks
from tests.conftest import make_gpt2, make_llama
from tests.unit.tasks.grpo import rank_program
from tests.unit.tasks.grpo.rank_program import CASES, LAYOUTS, ROWS

pytestmark = pytest.mark.ranks

OTHERS = ["gpt2", "continued", "checkpointed", "own reference", "own reference, one update"]
NAMES = [*(f"{name}-{layout}" for name in CASES for layout in LAYOUTS), *OTHERS]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process makes of every case."""
    folder = tmp_path_factory.mktemp("alone")
    begin(folder)
    rank_program.make_all(folder, ALONE)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two ranks make of them; the continued one goes on from one process's state."""
    folder = tmp_path_factory.mktemp("two")
    begin(folder)
    run_in_ranks(
        "tests.unit.tasks.grpo.rank_program",
        folder,
        folder / "ranks.log",
        num_processes=2,
        num_threads=1,
        on_progress=lambda done, total: None,
    )
    return folder


def begin(folder):
    changes, rows = CASES["grpo"]
    trainer = rank_program.trainer_of(rank_program.settings(changes, "packed"), ALONE)
    rank_program.make(folder, "begun", trainer, rows, 3)


def tensors(folder, name, file):
    return load_file(folder / name / file)


def metrics(folder, name):
    return json.loads((folder / name / "metrics.json").read_text())


@pytest.mark.parametrize("name", NAMES)
class TestTwoRanksAreOneProcess:
    def test_in_loss_gradient_norm_and_every_metric(self, alone, two, name):
        found, expected = metrics(two, name), metrics(alone, name)
        assert set(found) == set(expected)
        for key, value in expected.items():
            assert found[key] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE), key

    def test_in_every_weight(self, alone, two, name):
        found, expected = (tensors(each, name, "weights.safetensors") for each in (two, alone))
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert torch.allclose(found[key], value, rtol=0, atol=TOLERANCE), key

    def test_in_the_optimiser_state_by_name_and_shape(self, alone, two, name):
        found, expected = (tensors(each, name, "optimiser.safetensors") for each in (two, alone))
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert (found[key].dtype, found[key].shape) == (value.dtype, value.shape), key
            assert torch.allclose(found[key], value, rtol=0, atol=TOLERANCE), key


def test_the_cases_train(alone):
    for name in NAMES:
        num_updates = 0 if name.startswith("no signal") else 1
        assert metrics(alone, name)["num_updates"] >= num_updates, name
    assert metrics(alone, "grpo-packed")["num_updates"] == 6
    assert metrics(alone, "grpo-packed")["grad_norm"] > 10 * rank_program.OPTIMISER["max_grad_norm"]


def test_what_two_ranks_saved_one_process_goes_on_from(alone, two, tmp_path):
    changes, rows = CASES["grpo"]
    before = two / "grpo-packed"  # the same first step as that of the continued case
    trainer = rank_program.trainer_of(
        rank_program.settings(changes, "packed"), ALONE, before, rank_program.loaded(before)
    )
    rank_program.make(tmp_path, "end", trainer, rows, 4)
    found, expected = (
        tensors(tmp_path, "end", "weights.safetensors"),
        tensors(alone, "continued", "weights.safetensors"),
    )
    assert all(torch.allclose(found[key], value, rtol=0, atol=TOLERANCE) for key, value in expected.items())
    assert metrics(tmp_path, "end")["num_updates_total"] == 12


def test_a_row_that_is_not_finite_is_named_whichever_rank_it_was_on(alone, two):
    assert (two / "said").read_text() == (alone / "said").read_text()
    assert "caused by rows (group_id/sample_index): g1/1" in (two / "said").read_text()


def test_every_rank_has_the_log_probabilities_of_all_rows(alone, two):
    found, expected = (json.loads((each / "logprobs.json").read_text()) for each in (two, alone))
    assert [len(values) for values in found] == [len(each["completion_token_ids"]) for each in ROWS]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=TOLERANCE)


def test_tied_weights_are_saved_as_one_tensor():
    weights = whole_weights(make_llama())
    assert weights["lm_head.weight"] is weights["model.embed_tokens.weight"]


@pytest.mark.parametrize(("make", "name"), [(make_llama, "LlamaDecoderLayer"), (make_gpt2, "GPT2Block")])
def test_the_blocks_are_the_layers_of_the_model(make, name):
    assert [type(each).__name__ for each in blocks(make())] == [name, name]


def test_a_block_that_holds_a_tied_embedding_is_left_to_the_root():
    model = make_llama()
    model._no_split_modules = ["LlamaModel"]
    assert blocks(model) == []
    model._no_split_modules = None
    assert blocks(model) == []
