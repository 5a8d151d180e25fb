"""Refs and names: a store that was moved still works, and nothing leads out of it."""

import json
import os
import shutil
from pathlib import Path

import pytest

from storage import checkpoints, decisions, iterations, lineages, locations, lock
from storage.errors import CorruptArtifact, OutsideStore
from storage.iterations import IterationRecord
from storage.manifest import Provenance, read_manifest


def committed(place):
    """Iteration 0 with a policy, a reward model and a record."""

    def model(role):
        write = lambda folder: (folder / "model.safetensors").write_bytes(role.encode())  # noqa: E731
        return checkpoints.publish(place, role, write, Provenance(stage=role, inputs={})).model_copy(
            update={"version": "1"}
        )

    policy, reward = model("policy"), model("reward")
    record = IterationRecord(
        iteration=0, policy=policy, reference=policy, reward=reward, champion=policy, tables={}, metrics={}, seconds=1.0
    )
    return iterations.publish_record(place, record, reward)


def rewrite(place, change):
    """The committed record with other bytes, committed as they are."""
    folder = place.folder("record")
    fields = json.loads((folder / "record.json").read_text())
    change(fields)
    shutil.rmtree(folder)
    write = lambda aside: (aside / "record.json").write_text(json.dumps(fields))  # noqa: E731
    checkpoints.commits.publish(place, folder, write, Provenance(stage="record", inputs={}))


def test_files_name_what_they_name_from_the_root_on(place):
    record = committed(place)
    text = place.folder("record").joinpath("record.json").read_text()
    assert json.loads(text)["policy"]["uri"] == "lineage/iteration-0000/policy"
    assert json.loads(text)["format"] == 2
    assert place.root not in text
    assert record.policy.uri == str(place.folder("policy"))


def test_a_moved_store_reads_its_records_and_decisions_at_the_new_place(tmp_path):
    with lock.hold(tmp_path / "old", "lineage") as place:
        record = committed(place)
        decisions.take(
            place, "rollback", record.model_copy(update={"tables": {"evaluation": ref_of(place)}}), record, "w", "k"
        )
    (tmp_path / "old").rename(tmp_path / "new")
    new = tmp_path / "new"
    (found,) = iterations.records(new, "lineage")
    assert found.policy.uri == str(new / "lineage" / "iteration-0000" / "policy")
    assert iterations.latest_record(new, "lineage") == found
    assert checkpoints.open_folder(found.policy).joinpath("model.safetensors").read_bytes() == b"policy"
    (decision,) = decisions.decisions(new, "lineage")
    assert decision.policy.uri == found.policy.uri


def ref_of(place):
    from storage import tables

    return tables.publish(place, "pairs", [], Provenance(stage="pairs", inputs={}))


def test_a_record_of_format_1_from_a_store_that_was_moved_since_is_read_where_it_stands_now(place):
    committed(place)

    def old(fields):
        del fields["format"]
        for name in ("policy", "reference", "reward", "champion"):
            fields[name]["uri"] = f"/old/place/{fields[name]['uri']}"

    rewrite(place, old)
    (found,) = iterations.records(Path(place.root), "lineage")
    assert found.policy.uri == str(place.folder("policy"))


@pytest.mark.parametrize(
    "uri", ["/etc/passwd", "../outside", "lineage/../../outside", "..", ".", "/"], ids=lambda uri: uri.replace("/", "|")
)
def test_a_reference_out_of_the_store_is_refused_and_named(place, uri):
    committed(place)
    rewrite(place, lambda fields: fields["reward"].update(uri=uri))
    with pytest.raises(OutsideStore, match=rf"the reference '{uri}' leads to .*out of the store"):
        iterations.records(Path(place.root), "lineage")


def test_a_link_that_leads_out_of_the_store_is_refused(place, tmp_path_factory):
    committed(place)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "policy"
    place.folder("policy").rename(elsewhere)
    place.folder("policy").symlink_to(elsewhere)
    with pytest.raises(OutsideStore, match="out of the store"):
        iterations.latest_record(Path(place.root), "lineage")


def test_a_store_behind_a_link_is_the_store(tmp_path):
    with lock.hold(tmp_path / "real", "lineage") as place:
        committed(place)
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    (found,) = iterations.records(tmp_path / "alias", "lineage")
    assert found.policy.uri == str((tmp_path / "real").resolve() / "lineage/iteration-0000/policy")


@pytest.mark.parametrize("name", ["../secret", "/etc", "..", "a/../../b", "part\x00", "--", ""])
def test_a_lineage_name_can_not_lead_out_of_the_store(tmp_path, name):
    for look in (lineages.read_recipe, lineages.read_parent):
        with pytest.raises(ValueError, match="is not usable"):
            look(tmp_path, name)
    with pytest.raises(ValueError, match="is not usable"), lock.hold(tmp_path, name):
        pass


@pytest.mark.parametrize("name", ["../policy/model.safetensors", "/etc/passwd", "trainer/../../x"])
def test_a_manifest_whose_part_leads_out_of_its_folder_is_refused(place, name):
    committed(place)
    path = place.folder("policy") / "manifest.json"
    fields = json.loads(path.read_text())
    fields["parts"][0]["name"] = name
    path.write_text(json.dumps(fields))
    with pytest.raises(CorruptArtifact, match="leads out of its folder"):
        read_manifest(path.parent)


def test_weights_that_became_a_link_out_of_their_folder_are_refused(place, tmp_path_factory):
    record = committed(place)
    file = place.folder("policy") / "model.safetensors"
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "model.safetensors"
    os.rename(file, elsewhere)
    file.symlink_to(elsewhere)
    checkpoints._verified.clear()
    with pytest.raises(CorruptArtifact, match="is a link that leads out of its folder"):
        checkpoints.open_folder(record.policy)


@pytest.mark.parametrize(
    ("uri", "now"),
    [
        ("/a/b/runs/quick/iteration-0003/step-002/policy", "quick/iteration-0003/step-002/policy"),
        ("/x/iteration-0001/runs/quick/iteration-0003/reward", "quick/iteration-0003/reward"),
        ("quick/iteration-0003/reward", "quick/iteration-0003/reward"),
        ("iteration-0003/reward", "iteration-0003/reward"),
        ("/a/b", "/a/b"),
    ],
)
def test_an_older_uri_is_taken_from_its_lineage_on(uri, now):
    assert locations.relocated(uri) == now


def test_only_refs_are_changed(tmp_path):
    value = {"note": {"uri": "x"}, "list": [{"uri": "a/b", "digest": "d", "n": 1}]}
    assert locations.opened(value, tmp_path) == {
        "note": {"uri": "x"},
        "list": [{"uri": str(tmp_path.resolve() / "a/b"), "digest": "d", "n": 1}],
    }
