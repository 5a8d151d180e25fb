"""Decisions taken by hand: kept in order, in force from their iteration on, and never silently unreadable."""

import json

import pytest

from storage import checkpoints, decisions, iterations, lock, tables
from storage.errors import CorruptArtifact, LostLock, StorageError
from storage.iterations import IterationRecord
from storage.manifest import Provenance


@pytest.fixture
def records(place):
    """Three finished iterations; the third one's policy is current, the second one's champion."""
    found = []
    for iteration in range(3):
        here = place.at(iteration=iteration)
        policy, reward = (
            checkpoints.publish(
                here,
                role,
                lambda folder, role=role, iteration=iteration: (folder / "model.safetensors").write_text(
                    f"{role} {iteration}"
                ),
                Provenance(stage=role, inputs={}),
            ).model_copy(update={"version": str(iteration + 1)})
            for role in ("policy", "reward")
        )
        measured = tables.publish(
            here, "evaluation", [], Provenance(stage="evaluation", inputs={"policy": policy.digest})
        )
        champion = policy if iteration < 2 else found[1].policy
        record = IterationRecord(
            iteration=iteration, policy=policy, reference=policy, reward=reward, champion=champion,
            tables={"evaluation": measured, "champion_evaluation": measured}, metrics={}, seconds=1.0,
        )  # fmt: skip
        found.append(iterations.publish_record(here, record, reward))
    return found


def seen(place, record):
    from pathlib import Path

    return decisions.in_force(record, decisions.decisions(Path(place.root), place.lineage))


def test_without_a_decision_the_record_stands(place, records):
    assert seen(place, records[2]) == records[2]
    assert records[2].start == records[2].policy


def test_a_rollback_changes_the_start_the_champion_and_what_candidates_are_compared_with(place, records):
    taken = decisions.take(place, "rollback", records[0], records[2], "it stutters", "kim")
    after = seen(place, records[2])
    assert (after.start, after.champion) == (records[0].policy, records[0].policy)
    assert after.tables["champion_evaluation"] == records[0].tables["evaluation"]
    assert after.policy == records[2].policy
    assert taken.sentence == f"policy v1 gone back to by kim at {taken.at}: it stutters"
    assert after.promotion == taken.sentence


def test_a_promotion_leaves_the_start_alone(place, records):
    decisions.take(place, "promote", records[0], records[2], "why", "kim")
    after = seen(place, records[2])
    assert (after.start, after.champion) == (records[2].policy, records[0].policy)


def test_the_last_decision_wins_and_those_of_other_iterations_do_not_count(place, records):
    decisions.take(place, "rollback", records[0], records[1], "older", "kim")
    assert seen(place, records[2]) == records[2]
    decisions.take(place, "rollback", records[0], records[2], "first", "kim")
    decisions.take(place, "rollback", records[1], records[2], "second", "kim")
    assert seen(place, records[2]).start == records[1].policy
    assert len(list((place.lineage_folder / "decisions").iterdir())) == 3


def test_a_rollback_moves_the_unfinished_iteration_aside_and_a_promotion_does_not(place, records):
    unfinished = place.at(iteration=3, section="step-001").folder("completions")
    unfinished.mkdir(parents=True)
    decisions.take(place, "promote", records[0], records[2], "why", "kim")
    assert unfinished.exists()
    decisions.take(place, "rollback", records[0], records[2], "why", "kim")
    assert not unfinished.exists()
    assert len(list(place.lineage_folder.glob("*iteration-0003*/step-001/completions"))) == 1
    assert place.folder("record").exists()


def test_a_damaged_decision_is_named(place, records):
    decisions.take(place, "promote", records[0], records[2], "why", "kim")
    (path,) = (place.lineage_folder / "decisions").iterdir()
    path.write_text(json.dumps({"kind": "promote"}))
    with pytest.raises(CorruptArtifact, match=r"0001\.json is not a decision"):
        seen(place, records[2])


def test_only_the_holder_decides(place, records):
    late = place.model_copy(update={"token": place.token - 1})
    with pytest.raises(LostLock):
        decisions.take(late, "rollback", records[0], records[2], "why", "kim")
    assert not (place.lineage_folder / "decisions").exists()
    assert lock.read_holder(place.lineage_folder)["token"] == place.token


def test_a_reward_model_taken_between_iterations_scores_the_next_and_moves_nothing_else(place, records):
    reward = records[1].reward.model_copy(update={"version": "9"})
    taken = decisions.take_reward(place, reward, records[2], "more replay", "kim")
    after = seen(place, records[2])
    assert after.reward == reward
    assert (after.start, after.champion) == (records[2].start, records[2].champion)
    assert after.reward_promotion == f"reward model v9 taken by kim at {taken.at}: more replay"
    assert seen(place, records[1]) == records[1]


def test_a_reward_model_is_not_changed_under_an_iteration_that_has_begun(place, records):
    (place.lineage_folder / "iteration-0003").mkdir()
    with pytest.raises(StorageError, match="iteration 3 of 'lineage' was interrupted"):
        decisions.take_reward(place, records[1].reward, records[2], "why", "kim")
    assert decisions.decisions(place.lineage_folder.parent, place.lineage) == []
