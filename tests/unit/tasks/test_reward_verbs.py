"""The stages that feed, retrain and choose the reward model, on a store and without a server."""

import json
from pathlib import Path

import pytest

import tasks.mix_replay
from storage import checkpoints, tables
from storage.errors import ProvenanceMismatch
from storage.iterations import IterationRecord
from storage.manifest import Provenance
from tasks.draw_anchor import draw_anchor
from tasks.label_samples import label_samples
from tasks.mix_replay import mix_replay
from tasks.policy.characters import build_tokenizer
from tasks.promote_reward import promote_reward
from tasks.retrain_reward import found_reward_model, retrain_reward
from tasks.reward.config import HistoryReplay, PairsConfig, PointsConfig, RewardModelConfig
from tasks.runtime.config import MachineConfig
from tests.conftest import make_llama

PAIRS = PairsConfig()
MACHINE = MachineConfig(num_threads=1)


def config(**changes):
    training = {"optimiser": {"learning_rate": 1e-2}, "batch_labels": 8, "num_epochs": 6}
    return RewardModelConfig.model_validate({"num_initial_prompts": 1, "training": training, **changes})


def pairs(num, iteration, *, swapped=False):
    """Completions that end in 9 are better than those that end in 10, one pair per prompt."""
    sides = [[9, 2], [10, 11, 2]]
    better, worse = sides[::-1] if swapped else sides
    return [
        {
            "label_id": f"{iteration} {index}",
            "prompt_id": f"p{iteration} {index}",
            "prompt_key": f"key {iteration} {index}",
            "group_id": f"g{iteration} {index}",
            "prompt_token_ids": [1, 4 + index % 5],
            "origin_iteration": iteration,
            "chosen_token_ids": [5 + index % 4, *better],
            "rejected_token_ids": [5 + index % 4, *worse],
            "chosen_reward": 1.0,
            "rejected_reward": 0.0,
        }
        for index in range(num)
    ]


def prompts(place, keys=()):
    rows = [
        {
            "prompt_id": key,
            "prompt_key": key,
            "split": "heldout",
            "prompt": "x",
            "is_chat": False,
            "prompt_token_ids": [1],
            "answer": None,
            "metadata": "{}",
        }
        for key in keys
    ]
    return tables.publish(place, "prompts", rows, Provenance(stage="prompts", inputs={}))


def committed(place, rows, name="pairs"):
    provenance = Provenance(stage="pairs", inputs={"of": str(place.iteration) + name})
    return tables.publish(place, "pairs", rows, provenance, name=name)


@pytest.fixture
def first(place, tmp_path):
    """A founded reward model and what it was made from."""
    folder = tmp_path / "policy-source"
    make_llama().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)

    def write(aside: Path) -> None:
        make_llama().save_pretrained(aside)
        build_tokenizer().save_pretrained(aside)

    policy = checkpoints.publish(place, "policy", write, Provenance(stage="policy", inputs={}))
    known = prompts(place)
    labels = committed(place, pairs(80, 0))
    anchor = draw_anchor.fn(place, labels, PAIRS, config().anchor, 3)
    training = mix_replay.fn(place, known, labels, [], anchor, PAIRS, HistoryReplay(), 4)
    model = found_reward_model.fn(place, training, anchor, policy, config(), MACHINE, 5)
    return {
        "prompts": known,
        "labels": labels,
        "anchor": anchor,
        "training": training,
        "model": model,
        "policy": policy,
    }


def retrained(place, first, rows, settings=None):
    here = place.at(iteration=1)
    fresh = committed(here, rows)
    history = [first["labels"]]
    training = mix_replay.fn(here, first["prompts"], fresh, history, first["anchor"], PAIRS, HistoryReplay(), 6)
    heldout = committed(place.at(iteration=1, section="evaluation"), pairs(4, 9))
    return retrain_reward.fn(here, training, heldout, first["anchor"], first["model"], settings or config(), MACHINE, 7)


def record(first):
    return IterationRecord(
        iteration=0,
        policy=first["policy"],
        reference=first["policy"],
        reward=first["model"],
        champion=first["policy"],
        tables={},
        metrics={},
        seconds=0.0,
    )


def test_the_anchor_set_is_committed_once_and_never_trained_on(first):
    anchor, training = tables.read(first["anchor"]), tables.read(first["training"])
    assert (len(anchor), len(training)) == (16, 64)
    assert {row["label_id"] for row in anchor}.isdisjoint(row["label_id"] for row in training)
    assert first["anchor"].uri.endswith("anchor")
    assert first["anchor"].table == "pairs"


def test_replay_is_not_drawn_again_by_a_resume(place, first, monkeypatch):
    here = place.at(iteration=1)
    arguments = (here, first["prompts"], committed(here, pairs(5, 1)), [first["labels"]], first["anchor"], PAIRS)
    drawn = mix_replay.fn(*arguments, HistoryReplay(), 6)
    assert sum(row["is_replayed"] for row in tables.read(drawn)) == 6  # a tenth of 64

    def again(*args, **kwargs):
        raise AssertionError("the replay was drawn again")

    monkeypatch.setattr(tasks.mix_replay, "mix", again)
    assert mix_replay.fn(*arguments, HistoryReplay(), 6) == drawn
    for changed in [(HistoryReplay(), 7), (HistoryReplay(fraction=0.2), 6)]:
        with pytest.raises(ProvenanceMismatch):
            mix_replay.fn(*arguments, *changed)


def test_a_label_of_a_held_out_prompt_stops_the_mix(place, first):
    here = place.at(iteration=1)
    known = prompts(here, ["key 1 3"])
    with pytest.raises(ValueError, match="1 labels belong to held-out prompts"):
        mix_replay.fn(here, known, committed(here, pairs(5, 1)), [], first["anchor"], PAIRS, HistoryReplay(), 6)


def test_the_temperature_is_part_of_the_checkpoint_and_of_its_digest(first):
    folder = checkpoints.open_folder(first["model"])
    said = json.loads((folder / "reward_calibration.json").read_text())["temperature"]
    assert said == checkpoints.metrics_of(first["model"])["temperature"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert "reward_calibration.json" in [part["name"] for part in manifest["parts"]]


def test_a_retraining_that_forgot_is_refused_kept_and_not_gone_on_with(place, first):
    candidate = retrained(place, first, pairs(60, 1, swapped=True))
    choice = promote_reward.fn(candidate, record(first), config().anchor)
    assert choice.is_refused
    assert choice.reward_model == first["model"]
    assert choice.reason.startswith("refused: accuracy on 16 anchor labels -")
    assert checkpoints.open_folder(candidate).is_dir()


def test_a_retraining_that_did_not_forget_is_gone_on_with(place, first):
    candidate = retrained(place, first, pairs(30, 1))
    choice = promote_reward.fn(candidate, record(first), config().anchor)
    assert (choice.is_refused, choice.reward_model) == (False, candidate)
    assert "not worse beyond doubt by the margin 0.05" in choice.reason


@pytest.mark.parametrize(("state", "updates"), [("continue", 48 + 30), ("reset", 30)])
def test_the_optimiser_goes_on_or_begins_anew(place, first, state, updates):
    assert checkpoints.metrics_of(first["model"])["num_updates_total"] == 48  # 64 labels, 8 of them 6 times
    candidate = retrained(place, first, pairs(30, 1), config(optimiser_state=state))
    metrics = checkpoints.metrics_of(candidate)
    assert metrics["num_training_labels"] == 36
    assert metrics["num_updates_total"] == updates


def test_another_margin_or_optimiser_state_is_another_retraining(place, first):
    retrained(place, first, pairs(30, 1))
    training = tables.ref_at(place.at(iteration=1).folder("reward_training"))
    heldout = tables.ref_at(place.at(iteration=1, section="evaluation").folder("pairs"))
    for changed in (config(anchor={"margin": 0.2}), config(optimiser_state="reset")):
        with pytest.raises(ProvenanceMismatch):
            retrain_reward.fn(
                place.at(iteration=1), training, heldout, first["anchor"], first["model"], changed, MACHINE, 7
            )


def test_points_are_labelled_mixed_and_kept_in_tables_of_their_own(place):
    known = prompts(place, ["p"])
    completion = {
        "group_id": "g",
        "prompt_id": "p",
        "sample_index": 0,
        "prompt_token_ids": [1],
        "completion_token_ids": [5],
        "sampler_logprobs": None,
        "finish_reason": "stop",
        "is_truncated": False,
        "text": "x",
        "seed": 1,
        "temperature": 1.0,
        "policy_digest": "",
    }
    reward = {
        "group_id": "g",
        "prompt_id": "p",
        "sample_index": 0,
        "reward": 1.0,
        "is_correct": True,
        "exact_reward": 1.0,
        "exact_status": "scored",
        "exact_reason": None,
        "step_rewards": None,
        "step_ends": None,
    }
    nothing = Provenance(stage="completions", inputs={})
    completions = tables.publish(place, "completions", [completion], nothing)
    rewards = tables.publish(place, "rewards", [reward], Provenance(stage="rewards", inputs={}), sources=("exact",))
    points = PointsConfig(kind="points")
    here = place.at(iteration=0, section="labels")
    labels = label_samples.fn(here, known, [completions], [rewards], points, "exact", 0)
    assert (labels.table, [row["label"] for row in tables.read(labels)]) == ("points", [1.0])
    anchor = draw_anchor.fn(here, labels, points, config().anchor, 0)
    assert (anchor.table, anchor.num_rows) == ("points", 0)
    other = prompts(here)
    mixed = mix_replay.fn(here, other, labels, [], anchor, points, HistoryReplay(), 0)
    assert (mixed.table, [row["is_replayed"] for row in tables.read(mixed)]) == ("mixed_points", [False])
    assert mixed.uri.endswith("reward_training")
