"""The stage that updates the policy, on a store and without a server: what is loaded, kept and written."""

import json
from pathlib import Path

import pytest
import torch

import tasks.update_policy
from storage import checkpoints, tables
from storage.errors import ProvenanceMismatch
from storage.manifest import Provenance
from tasks.grpo.config import UpdateConfig
from tasks.policy.characters import build_tokenizer
from tasks.policy.loading import load_model
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.update_policy import update_policy
from tests.conftest import make_llama
from tests.unit.tasks.grpo.tiny_models import samples

MACHINE = MachineConfig(num_threads=1)
KL = {"placement": "loss", "beta": 0.5}


def config(**changes):
    settings = {"algorithm": "grpo", "optimiser": {"learning_rate": 1e-2, "max_grad_norm": 1e9}, "kl": KL}
    return UpdateConfig.model_validate(settings | changes)


@pytest.fixture(autouse=True)
def nobody_is_resident():
    residents.clear()
    yield
    residents.clear()


@pytest.fixture
def first(place, tmp_path):
    """A first policy and its samples."""
    model = make_llama()

    def write(folder: Path) -> None:
        model.save_pretrained(folder)
        build_tokenizer(64).save_pretrained(folder)

    policy = checkpoints.publish(place, "policy", write, Provenance(stage="policy", inputs={}))
    others = dict.fromkeys(("overlong_penalty", "reference_logprobs", "values", "returns"))
    added = {"prompt_id": "p", "policy_digest": policy.digest, "reward": 0.0, **others}
    rows = [{**row, **added} for row in samples()]
    return policy, tables.publish(place, "samples", rows, Provenance(stage="samples", inputs={}))


def step(place, number, table, policy, reference, settings, seed=None, iteration=1):
    here = place.at(iteration=iteration, section=f"step-{number:03d}")
    return update_policy.fn(here, [table], policy, reference, settings, 12, MACHINE, number if seed is None else seed)


def weights(ref):
    return torch.cat([each.flatten() for each in load_model(Path(ref.uri), device="cpu").state_dict().values()])


def test_the_reference_is_loaded_only_once_the_policy_has_moved_away_from_it(place, first, monkeypatch):
    policy, table = first
    loaded = []
    monkeypatch.setattr(
        tasks.update_policy,
        "load_model",
        lambda folder, device: loaded.append(folder) or load_model(folder, device=device),
    )
    one = step(place, 1, table, policy, policy, config())
    assert len(loaded) == 1
    step(place, 2, table, one, policy, config())
    assert len(loaded) == 2
    assert checkpoints.metrics_of(one)["kl"] == 0.0


def test_the_precision_is_part_of_the_provenance_and_the_one_in_force_of_the_metrics(place, first):
    policy, table = first
    one = step(place, 1, table, policy, policy, config(precision="float32"))
    assert checkpoints.metrics_of(one)["precision_bits"] == 32
    with pytest.raises(ProvenanceMismatch, match="precision"):
        step(place, 1, table, policy, policy, config(precision="bfloat16"))


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
@pytest.mark.parametrize("state", ["float32", "int8"])
def test_a_step_after_a_restart_is_the_one_that_would_have_come_next(place, first, lora, state, monkeypatch):
    monkeypatch.setattr("tasks.runtime.adamw.MIN_QUANTISED", 32)
    policy, table = first
    settings = config(lora=lora, optimiser={"learning_rate": 1e-2, "state": state})
    ends = []
    for iteration, is_restarted in ((1, False), (2, True)):
        one = step(place, 1, table, policy, policy, settings, iteration=iteration)
        if is_restarted:
            residents.clear()
        ends.append(step(place, 2, table, one, policy, settings, iteration=iteration))
    parts = [{part.name: part.sha256 for part in checkpoints._manifest_of(end).parts} for end in ends]
    assert parts[0] == parts[1]
    assert "model.safetensors" in parts[0]


class TestLora:
    SETTINGS = config(lora={"rank": 2, "alpha": 4})

    def test_others_read_a_plain_model_and_the_adapter_says_what_it_stands_on(self, place, first):
        policy, table = first
        one = step(place, 1, table, policy, policy, self.SETTINGS)
        folder = Path(one.uri)
        lineage = json.loads((folder / "adapter" / "lineage.json").read_text())
        assert lineage == {"base_digest": policy.digest, "rank": 2, "alpha": 4.0}
        plain = load_model(folder, device="cpu")
        assert not any("lora" in name for name in plain.state_dict())
        assert (weights(one) - weights(policy)).abs().max() > 1e-4
        assert checkpoints.metrics_of(one)["lora_rank"] == 2

    def test_the_next_iteration_stands_on_the_sums_with_a_new_adapter(self, place, first):
        policy, table = first
        one = step(place, 1, table, policy, policy, self.SETTINGS)
        two = step(place, 2, table, one, policy, self.SETTINGS)
        assert json.loads((Path(two.uri) / "adapter" / "lineage.json").read_text())["base_digest"] == policy.digest
        three = step(place, 1, table, two, two, self.SETTINGS, iteration=2)
        assert json.loads((Path(three.uri) / "adapter" / "lineage.json").read_text())["base_digest"] == two.digest
        metrics = checkpoints.metrics_of(three)
        assert metrics["kl"] == 0.0
        assert metrics["num_updates_total"] == 1
        residents.clear()
        again = step(place, 1, table, two, two, self.SETTINGS, iteration=3)
        assert torch.equal(weights(three), weights(again))

    def test_the_kl_within_an_iteration_is_that_to_its_start(self, place, first):
        policy, table = first
        one = step(place, 1, table, policy, policy, self.SETTINGS)
        two = step(place, 2, table, one, policy, self.SETTINGS)
        assert checkpoints.metrics_of(two)["kl"] > 1e-7
