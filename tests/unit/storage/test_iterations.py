"""The newest iteration that counts is the newest that is whole."""

import json
import shutil
from pathlib import Path

import pytest

from storage import checkpoints, iterations, lineages, summaries, tables
from storage.errors import CorruptArtifact, LostLock, ProvenanceMismatch, UnknownFormat
from storage.iterations import IterationRecord
from storage.manifest import Provenance


def results(place, iteration):
    """The models and the table of an iteration, found or made."""
    here = place.at(iteration=iteration)

    def model(role):
        provenance = Provenance(stage=role, inputs={})
        write = lambda folder: (folder / "model.safetensors").write_bytes(b"%s %d" % (role.encode(), iteration))  # noqa: E731
        return checkpoints.find(here, role, provenance) or checkpoints.publish(here, role, write, provenance)

    provenance = Provenance(stage="pairs", inputs={})
    pairs = tables.find(here, "pairs", provenance) or tables.publish(here, "pairs", [], provenance)
    return model("policy"), model("reward"), pairs


def record(place, iteration, **changes):
    policy, reward, pairs = results(place, iteration)
    made = IterationRecord(
        iteration=iteration, policy=policy, reference=policy, reward=reward, champion=policy,
        tables={"pairs": pairs}, metrics={"evaluation/accuracy": 0.5}, seconds=1.0,
    )  # fmt: skip
    return iterations.publish_record(place.at(iteration=iteration), made.model_copy(update=changes), reward)


def numbers(place):
    return [each.iteration for each in iterations.records(Path(place.root), "lineage")]


def latest(place):
    found = iterations.latest_record(Path(place.root), "lineage")
    return None if found is None else found.iteration


def folder(place, iteration, *names):
    return place.lineage_folder.joinpath(f"iteration-{iteration:04d}", *names)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_an_unfinished_lineage_has_no_newest_iteration(place):
    assert latest(place) is None
    results(place, 0)
    assert latest(place) is None
    assert iterations.records(Path(place.root), "nothing") == []


def test_records_come_back_as_they_were_committed_in_numeric_order(place):
    made = [record(place, iteration) for iteration in range(12)]
    assert iterations.records(Path(place.root), "lineage") == made
    assert latest(place) == 11


def test_unfinished_iterations_leftovers_and_foreign_names_do_not_count(place, caplog):
    for iteration in range(11):
        record(place, iteration)
    for name in (
        "iteration-0011/.tmp-record-1",
        "iteration-0011/step-001",
        "notes",
        "iteration-abc",
        "iteration-11.tmp",
    ):
        (place.lineage_folder / name).mkdir(parents=True)
    for name in (".corrupt-iteration-0011", ".tmp-iteration-0011", "iteration-0011.bak"):
        shutil.copytree(folder(place, 10), place.lineage_folder / name)
    shutil.copy(folder(place, 10, "record", "record.json"), place.lineage_folder / "iteration-0011" / "step-001")
    assert latest(place) == 10
    assert "iteration-0011.bak" not in str(numbers(place))


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink], ids=["one byte short", "one bit changed", "gone"])
def test_a_damaged_record_does_not_count_and_is_named(place, caplog, damage):
    for iteration in range(3):
        record(place, iteration)
    damage(folder(place, 2, "record", "record.json"))
    assert latest(place) == 1
    assert "iteration 2 of lineage does not count" in caplog.text
    assert "record.json" in caplog.text


@pytest.mark.parametrize(
    "damaged", ["policy/model.safetensors", "reward/model.safetensors", "pairs/part-00000.parquet"]
)
@pytest.mark.parametrize("damage", [cut, Path.unlink], ids=["one byte short", "gone"])
def test_an_iteration_whose_results_are_damaged_is_not_gone_on_from_and_is_named(place, caplog, damaged, damage):
    for iteration in range(3):
        record(place, iteration)
    damage(folder(place, 2, damaged))
    assert latest(place) == 1
    assert iterations.find_record(place.at(iteration=2)) is None
    assert "iteration 2 of lineage can not be gone on from" in caplog.text
    assert str(folder(place, 2, damaged).parent) in caplog.text


def test_results_that_were_replaced_by_others_are_not_gone_on_from(place):
    for iteration in range(2):
        record(place, iteration)
    shutil.rmtree(folder(place, 1, "policy"))
    shutil.copytree(folder(place, 0, "policy"), folder(place, 1, "policy"))
    assert latest(place) == 0


def test_old_weights_may_go_as_long_as_the_newest_stand(place):
    for iteration in range(3):
        record(place, iteration)
    shutil.rmtree(folder(place, 0, "policy"))
    assert latest(place) == 2
    assert numbers(place) == [0, 1, 2]


def test_what_comes_after_a_gap_does_not_count_and_is_said(place, caplog):
    for iteration in range(4):
        record(place, iteration)
    shutil.rmtree(folder(place, 1, "record"))
    assert numbers(place) == [0]
    assert "iteration 1 of lineage does not count, nor what came after: it has no record" in caplog.text


def test_nothing_is_said_of_a_lineage_that_is_whole(place, caplog):
    record(place, 0)
    results(place, 1)
    assert latest(place) == 0
    assert caplog.text == ""


def test_a_record_under_another_number_does_not_count(place):
    record(place, 0)
    shutil.copytree(folder(place, 0), folder(place, 1))
    assert numbers(place) == [0]


def test_a_record_of_another_version_is_not_damage(place):
    made = record(place, 0)
    path = folder(place, 0, "record")
    shutil.rmtree(path)
    text = json.dumps({**made.model_dump(mode="json"), "something_new": 1})
    checkpoints.commits.publish(
        place, path, lambda aside: (aside / "record.json").write_text(text), Provenance(stage="record", inputs={})
    )
    with pytest.raises(UnknownFormat, match="another version"):
        iterations.records(Path(place.root), "lineage")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_that_is_not_finite_does_not_make_the_record_unreadable(place, value):
    record(place, 0, metrics={"loss": value})
    (found,) = iterations.records(Path(place.root), "lineage")
    assert repr(found.metrics["loss"]) == repr(value)


def test_publishing_a_record_again_changes_nothing(place):
    made = record(place, 0)
    before = folder(place, 0, "record", "manifest.json").read_bytes()
    assert record(place, 0, seconds=9.0) == made
    assert folder(place, 0, "record", "manifest.json").read_bytes() == before


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink], ids=["one byte short", "one bit changed", "gone"])
def test_a_damaged_record_is_made_again(place, damage):
    for iteration in range(2):
        record(place, iteration)
    damage(folder(place, 1, "record", "record.json"))
    assert latest(place) == 0
    record(place, 1)
    assert latest(place) == 1
    assert len(list(folder(place, 1).glob(".corrupt-record-*"))) == 1


def test_an_iteration_that_came_out_otherwise_is_never_recorded_over_the_first(place):
    made = record(place, 0)
    with pytest.raises(ProvenanceMismatch, match=r"inputs\.policy: recorded"):
        record(place, 0, policy=made.policy.model_copy(update={"digest": "f" * 64}))
    assert iterations.records(Path(place.root), "lineage") == [made]


def test_damaged_weights_are_refused_on_opening_and_rebuilt_after_their_folder_is_deleted(place):
    made = [record(place, iteration) for iteration in range(2)]
    flip(folder(place, 1, "policy", "model.safetensors"))
    checkpoints._verified.clear()
    with pytest.raises(CorruptArtifact, match=rf"delete {folder(place, 1, 'policy')} and run again"):
        checkpoints.open_folder(made[1].policy)
    shutil.rmtree(folder(place, 1, "policy"))
    assert latest(place) == 0  # so that iteration 1 runs again, finding all but the policy
    assert results(place, 1)[0] == made[1].policy
    assert record(place, 1) == made[1]
    assert latest(place) == 1


def test_only_the_holder_records_an_iteration(place):
    results(place, 0)
    (place.lineage_folder / "holder.json").write_text(json.dumps({"token": place.token + 1}))
    with pytest.raises(LostLock):
        record(place, 0)
    assert numbers(place) == []


def test_the_summary_holds_every_promised_key(place):
    lineages.record_recipe(place, {"name": "r"})
    assert summaries.summary_of(Path(place.root), "lineage") == {}
    for iteration in range(2):
        policy, reward, _ = results(place, iteration)
        versioned = {"version": str(iteration + 1)}
        record(
            place,
            iteration,
            policy=policy.model_copy(update=versioned),
            reward=reward.model_copy(update=versioned),
            champion=policy.model_copy(update=versioned),
            metrics={"evaluation/accuracy": 0.25 * (iteration + 1), "reward_mean": 0.75, "replay/num_fresh": 20.0},
        )
    summary = summaries.summary_of(Path(place.root), "lineage")
    assert (summary["lineage"], summary["recipe"], summary["baseline_accuracy"]) == ("lineage", "r", 0.25)
    (row,) = summary["iterations"]
    promised = {
        "iteration", "reward_mean", "accuracy_before", "accuracy_after", "reward_model_accuracy_before",
        "reward_model_accuracy_after", "num_fresh", "num_replayed", "policy_version", "reward_version",
        "champion_version", "seconds", "outcome",
    }  # fmt: skip
    assert promised <= row.keys()
    assert (row["iteration"], row["reward_mean"], row["accuracy_after"]) == (1, 0.75, 0.5)
    assert (row["policy_version"], row["num_fresh"], row["num_replayed"], row["accuracy_before"]) == (2, 20, 0, None)


def test_a_record_from_before_reward_models_were_refused_is_read(place):
    fields = record(place, 0).model_dump(mode="json")
    for name in ("reward_promotion", "refused_reward"):
        del fields[name]
    found = IterationRecord.model_validate(fields)
    assert (found.reward_promotion, found.refused_reward) == ("", None)


def test_a_refused_reward_model_is_part_of_what_the_record_was_made_from(place):
    _, reward, _ = results(place, 0)
    record(place, 0, refused_reward=reward, reward_promotion="refused: it forgot")
    with pytest.raises(ProvenanceMismatch, match="refused_reward"):
        record(place, 0)
