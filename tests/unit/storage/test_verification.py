"""What a look at a whole store finds: every damage, by name, and nothing in a store that is whole."""

import json
import shutil
from pathlib import Path

import pytest

from storage import checkpoints, decisions, iterations, lineages, tables, verification
from storage.iterations import IterationRecord
from storage.manifest import Provenance


@pytest.fixture
def lineage(place):
    """Two finished iterations, a decision, an unfinished third one; gives the folder of the lineage."""
    lineages.record_recipe(place, {"name": "r"})
    records = []
    for iteration in range(2):
        here = place.at(iteration=iteration)

        def model(role, here=here):
            def write(folder):
                (folder / "model.safetensors").write_bytes(f"{role} {here.iteration}".encode())
                (folder / "trainer").mkdir()
                (folder / "trainer" / "state.json").write_text("{}")

            return checkpoints.publish(here, role, write, Provenance(stage=role, inputs={}))

        pairs = tables.publish(here, "pairs", [], Provenance(stage="pairs", inputs={}))
        policy, reward = model("policy"), model("reward")
        record = IterationRecord(
            iteration=iteration, policy=policy, reference=policy, reward=reward, champion=policy,
            tables={"labels": pairs, "evaluation": pairs}, metrics={}, seconds=1.0,
        )  # fmt: skip
        records.append(iterations.publish_record(here, record, reward))
    decisions.take(place, "promote", records[0], records[1], "why", "kim")
    unfinished = place.at(iteration=2, section="step-001")
    tables.publish(unfinished, "pairs", [], Provenance(stage="pairs", inputs={}))
    unfinished.folder(".tmp-policy-1").mkdir()
    unfinished.folder("rewards").mkdir()
    return place.lineage_folder


def look(lineage):
    return verification.verify_lineage(lineage.parent, lineage.name)


def damaged(path, change):
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(bytes(data))


def test_a_whole_lineage_has_no_fault_and_is_counted(lineage):
    found = look(lineage)
    assert found.faults == ()
    # per iteration: policy and reward model of two files each, one table, one record; and the unfinished table
    assert (found.num_manifests, found.num_parts, found.num_pruned) == (9, 13, 0)
    assert found.num_bytes == sum(
        path.stat().st_size
        for path in lineage.glob("iteration-*/**/*")
        if path.is_file() and path.name != "manifest.json"
    )


@pytest.mark.parametrize(
    "name",
    [
        "iteration-0000/policy/model.safetensors",
        "iteration-0001/reward/trainer/state.json",
        "iteration-0001/pairs/part-00000.parquet",
        "iteration-0002/step-001/pairs/part-00000.parquet",
        "iteration-0001/record/record.json",
    ],
)
def test_one_changed_bit_anywhere_is_found_and_named(lineage, name):
    damaged(lineage / name, lambda data: data.__setitem__(-1, data[-1] ^ 1))
    faults = look(lineage).faults
    assert any(str(lineage / name) in fault and "sha256" in fault for fault in faults)


def test_a_missing_and_a_surplus_file_are_found(lineage):
    (lineage / "iteration-0000/policy/model.safetensors").unlink()
    (lineage / "iteration-0000/reward/extra.json").write_text("{}")
    assert look(lineage).faults == (
        f"{lineage}/iteration-0000/policy/model.safetensors is missing",
        f"{lineage}/iteration-0000/reward/extra.json is not in the manifest",
    )


def test_every_broken_part_of_a_folder_is_named(lineage):
    for name in ("model.safetensors", "trainer/state.json"):
        damaged(lineage / "iteration-0000/policy" / name, lambda data: data.append(0))
    assert len(look(lineage).faults) == 2


def test_a_file_that_was_replaced_by_a_link_is_found(lineage, tmp_path_factory):
    path = lineage / "iteration-0000/policy/model.safetensors"
    elsewhere = tmp_path_factory.mktemp("x") / "model.safetensors"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert look(lineage).faults == (f"{path} is a link or leads out of its folder",)


def test_a_record_whose_ref_names_nothing_or_something_else_is_found(lineage):
    shutil.rmtree(lineage / "iteration-0000/reward")
    shutil.rmtree(lineage / "iteration-0001/policy")
    shutil.copytree(lineage / "iteration-0000/policy", lineage / "iteration-0001/policy")
    faults = look(lineage).faults
    assert len(faults) == 2
    assert faults[0].endswith(f"the reference to {lineage}/iteration-0000/reward names nothing committed")
    assert f"{lineage}/iteration-0001/record: {lineage}/iteration-0001/policy has digest" in faults[1]


def test_a_decision_whose_ref_names_nothing_is_found(lineage):
    path = lineage / "decisions" / "0001.json"
    fields = json.loads(path.read_text())
    fields["policy"]["uri"] = "lineage/iteration-0009/policy"
    path.write_text(json.dumps(fields))
    assert look(lineage).faults == (
        f"{lineage}/decisions: the reference to {lineage}/iteration-0009/policy names nothing committed",
    )


def test_a_gap_between_the_records_is_found(lineage):
    shutil.rmtree(lineage / "iteration-0000/record")
    assert look(lineage).faults == (f"{lineage}/iteration-0000 has no record, later iterations have one",)


def test_a_manifest_that_can_not_be_read_a_recipe_and_a_reference_outside_are_found(lineage):
    (lineage / "iteration-0000/pairs/manifest.json").write_text("{")
    (lineage / "lineage.json").write_text('{"format": 1}')
    faults = "\n".join(look(lineage).faults)
    assert "iteration-0000/pairs/manifest.json is not JSON" in faults
    assert "lineage.json holds no recipe" in faults


def test_a_table_of_a_later_schema_is_a_fault(place, lineage, monkeypatch):
    monkeypatch.setattr(tables, "SCHEMA_VERSION", 9)
    tables.publish(place.at(iteration=3), "points", [], Provenance(stage="points", inputs={}))
    assert look(lineage).faults == (
        f"{lineage}/iteration-0003/points has the columns of schema 9, this code reads 1 to 3",
    )


def test_a_table_that_is_no_parquet_or_has_other_rows_is_a_fault_though_its_digest_is_right(place, lineage):
    here = place.at(iteration=3)
    write = lambda folder: (folder / "part-00000.parquet").write_bytes(b"none")  # noqa: E731
    provenance = Provenance(stage="points", inputs={})
    checkpoints.commits.publish(here, here.folder("points"), write, provenance, num_rows=0, schema_version=3)
    pairs = here.folder("pairs")
    shutil.copytree(lineage / "iteration-0000/pairs", pairs)
    fields = json.loads((pairs / "manifest.json").read_text())
    (pairs / "manifest.json").write_text(json.dumps({**fields, "num_rows": 5}))
    first, second = look(lineage).faults
    assert first == f"{pairs} has 0 rows, 5 committed"
    assert second.startswith(f"{here.folder('points')} can not be read as Parquet")


def test_weights_that_were_removed_on_purpose_are_no_fault(place, lineage):
    (record, _) = iterations.records(Path(place.root), "lineage")
    checkpoints.prune(place, record.reward)
    found = look(lineage)
    assert (found.faults, found.num_pruned, found.num_parts) == ((), 1, 11)
