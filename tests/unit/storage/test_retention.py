"""What a collection may take: a plan that names a reason for everything that stays."""

import json
import shutil
from pathlib import Path

import pytest

from storage import checkpoints, decisions, iterations, lock, retention
from storage.errors import CorruptArtifact, UnknownFormat
from storage.manifest import Provenance


@pytest.fixture
def records(place, finish):
    """Iterations 0 to 5."""
    return [finish(place, iteration) for iteration in range(6)]


def plan(place, keep_last=2):
    return retention.plan(Path(place.root), place.lineage, keep_last)


def names(each):
    return [one.name.removeprefix("lineage/") for one in each]


def reasons(made, name):
    (kept,) = [each for each in made.kept if each.name == f"lineage/{name}"]
    return kept.reasons


def checkpoint_names(numbers):
    return [f"iteration-{number:04d}/{role}" for number in numbers for role in ("policy", "reward")]


def test_the_last_k_and_the_reference_of_the_oldest_of_them_stay_and_the_rest_goes(place, records):
    made = plan(place)
    assert names(made.removed) == [*checkpoint_names(range(3)), "iteration-0003/reward"]
    assert reasons(made, "iteration-0003/policy") == ("named by iteration 4, one of the last 2",)
    assert reasons(made, "iteration-0005/policy") == (
        "the champion",
        "the next iteration starts from it",
        "named by iteration 5, one of the last 2",
    )


def test_the_reward_model_that_scores_the_next_iteration_stays(place, records, finish):
    """Also when every later one was refused; the record names it."""
    finish(place, 6, reward=records[1].reward)
    assert reasons(plan(place, 1), "iteration-0001/reward") == (
        "the next iteration starts from it",
        "named by iteration 6, one of the last 1",
    )


@pytest.mark.parametrize(("keep_last", "num_gone"), [(1, 9), (3, 5), (5, 1), (6, 0), (99, 0)])
def test_k_is_a_number_of_iterations(place, records, keep_last, num_gone):
    assert len(plan(place, keep_last).removed) == num_gone


def test_every_checkpoint_stands_in_exactly_one_of_the_two_lists(place, records):
    made = plan(place)
    assert sorted([*names(made.kept), *names(made.removed)]) == checkpoint_names(range(6))


def test_bytes_are_those_of_the_files_without_the_manifest(place, records):
    (first, *_) = plan(place).removed
    assert first.num_bytes == len("lineage policy 0") * 100 + 2


def test_tables_and_records_are_never_part_of_it(place, records):
    assert not [name for name in names(plan(place).removed) if not name.endswith(("policy", "reward"))]


def test_a_champion_by_hand_and_by_the_gate_stays(place, records, finish):
    decisions.take(place, "promote", records[1], records[5], "why", "kim")
    made = plan(place, 1)
    assert reasons(made, "iteration-0001/policy") == ("the champion",)
    finish(place, 6, champion=records[2].policy)
    assert "the champion" in reasons(plan(place, 1), "iteration-0002/policy")
    assert "lineage/iteration-0001/policy" in [each.name for each in plan(place, 1).removed]


def test_where_a_rollback_goes_on_from_stays(place, records):
    decisions.take(place, "rollback", records[0], records[5], "why", "kim")
    assert "the next iteration starts from it" in reasons(plan(place, 1), "iteration-0000/policy")


def test_the_best_iteration_that_the_alarm_goes_back_to_stays(place, records, finish):
    finish(place, 6, best_iteration=1)
    assert "the best measured policy" in reasons(plan(place, 1), "iteration-0001/policy")[0]
    assert "lineage/iteration-0001/reward" in [each.name for each in plan(place, 1).removed]


def test_the_first_policy_stays_where_it_writes_the_completions(place, records):
    path = place.lineage_folder / "lineage.json"
    fields = json.loads(path.read_text())
    fields["recipe"]["update"] = {"rollout_policy": "initial"}
    path.write_text(json.dumps(fields))
    assert "update.rollout_policy" in reasons(plan(place), "iteration-0000/policy")[0]


def test_an_unfinished_iteration_loses_nothing(place, records):
    here = place.at(iteration=6, section="step-001")
    write = lambda folder: (folder / "model.safetensors").write_bytes(b"x")  # noqa: E731
    checkpoints.publish(here, "policy", write, Provenance(stage="policy", inputs={}))
    assert reasons(plan(place), "iteration-0006/step-001/policy") == ("the unfinished iteration goes on from it",)


def test_a_lineage_without_a_finished_iteration_loses_nothing(place):
    write = lambda folder: (folder / "model.safetensors").write_bytes(b"x")  # noqa: E731
    checkpoints.publish(place, "policy", write, Provenance(stage="policy", inputs={}))
    assert reasons(plan(place), "iteration-0000/policy") == ("the lineage has no finished iteration yet",)


def test_iterations_behind_a_damaged_record_lose_nothing(place, records):
    shutil.rmtree(place.lineage_folder / "iteration-0002" / "record")
    made = plan(place, 1)
    assert names(made.removed) == ["iteration-0000/reward"]


def test_what_a_branch_begins_with_stays(place, records, finish):
    with lock.hold(Path(place.root), "other") as other:
        finish(other, 0, policy=records[1].policy, reward=records[1].reward)
    made = plan(place)
    assert reasons(made, "iteration-0001/policy") == ("lineage other was branched from it",)
    assert reasons(made, "iteration-0001/reward") == ("lineage other was branched from it",)
    assert "lineage/iteration-0000/policy" in [each.name for each in made.removed]


def test_weights_that_are_gone_already_are_in_neither_list(place, records):
    checkpoints.prune(place, records[0].policy)
    made = plan(place)
    assert "iteration-0000/policy" not in [*names(made.kept), *names(made.removed)]


def test_what_was_moved_aside_and_what_was_left_unfinished_goes(place, records):
    folder = place.lineage_folder / "iteration-0004" / ".corrupt-policy-1"
    shutil.copytree(place.lineage_folder / "iteration-0004" / "policy", folder)
    (place.lineage_folder / ".tmp-request.json-1").write_text("12345")
    found = {each.name: each for each in plan(place, 99).removed}
    assert found.keys() == {"lineage/iteration-0004/.corrupt-policy-1", "lineage/.tmp-request.json-1"}
    assert found["lineage/.tmp-request.json-1"].num_bytes == 5


def test_nothing_may_go_when_a_manifest_or_a_record_can_not_be_read(place, records):
    path = place.lineage_folder / "iteration-0001" / "policy" / "manifest.json"
    whole = path.read_text()
    path.write_text("{")
    with pytest.raises(CorruptArtifact, match="is not JSON"):
        plan(place)
    path.write_text(whole.replace('"format": 1', '"format": 9'))
    with pytest.raises(UnknownFormat, match="format 9"):
        plan(place)
    path.write_text(whole)
    assert len(iterations.records(Path(place.root), "lineage")) == 6
