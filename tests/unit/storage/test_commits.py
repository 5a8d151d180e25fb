"""What a commit writes down, and what it refuses to write."""

import json
import math
import subprocess
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import checkpoints, commits, manifest
from storage.digests import digest_of_parts
from storage.errors import CorruptArtifact, ProvenanceMismatch, UnknownFormat
from storage.manifest import Provenance, differences
from storage.refs import Place

PROVENANCE = Provenance(stage="policy", inputs={"samples": "a"}, config={"rate": 0.1, "ks": [1, 4]}, seed=3)


def write(folder):
    (folder / "model.safetensors").write_bytes(b"weights")


def publish(place, write=write, **settings):
    return commits.publish(place, place.folder("policy"), write, PROVENANCE, **settings)


def find(place, provenance=PROVENANCE):
    return commits.find(place, place.folder("policy"), provenance)


def edit_manifest(place, **changes):
    path = place.folder("policy") / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_manifest_on_disk_is_the_one_that_was_given_back(place):
    made = publish(place, num_rows=3, schema_version=1, metrics={"loss": 0.5}, repaired_rows=(1,))
    assert find(place) == made
    assert made.provenance == PROVENANCE
    assert [(part.name, part.size) for part in made.parts] == [("model.safetensors", 7)]
    assert (made.num_rows, made.schema_version, made.metrics, made.repaired_rows) == (3, 1, {"loss": 0.5}, (1,))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_survives_committing_and_pruning(place, value):
    ref = checkpoints.publish(place, "policy", write, PROVENANCE, metrics={"loss": value})
    assert repr(checkpoints.metrics_of(ref)["loss"]) == repr(value)
    checkpoints.prune(place, ref)
    assert repr(checkpoints.metrics_of(ref)["loss"]) == repr(value)


def test_metrics_may_be_measured_while_the_stage_is_written(place):
    metrics = {}

    def measure(folder):
        write(folder)
        metrics["loss"] = 2.0

    assert publish(place, measure, metrics=metrics).metrics == {"loss": 2.0}


def test_a_nested_file_with_the_name_of_the_manifest_is_a_part_like_any_other(place):
    def nested(folder):
        (folder / "inner").mkdir()
        (folder / "inner" / "manifest.json").write_text("{}")

    assert [part.name for part in publish(place, nested).parts] == ["inner/manifest.json"]


def write_nothing(folder):
    (folder / "empty").mkdir()


def write_a_manifest(folder):
    (folder / "manifest.json").write_text("{}")


def link_a_file(folder):
    (folder / "model.safetensors").symlink_to("/etc/hostname")


def link_a_folder(folder):
    write(folder)
    (folder / "blobs").symlink_to("/etc")


@pytest.mark.parametrize(
    "wrong", [write_nothing, write_a_manifest, link_a_file, link_a_folder], ids=lambda w: w.__name__
)
def test_a_stage_of_nothing_or_of_links_is_refused_and_leaves_nothing(place, wrong):
    with pytest.raises(ValueError, match=r"the stage wrote"):
        publish(place, wrong)
    assert find(place) is None
    assert not list(place.lineage_folder.rglob(".tmp-*"))


def test_files_that_were_added_later_change_nothing(place):
    made = publish(place)
    (place.folder("policy") / "notes.txt").write_text("mine")
    assert find(place) == made
    made.verify(place.folder("policy"))


def test_damage_is_moved_aside_with_its_bytes_and_named(place, caplog):
    publish(place)
    (place.folder("policy") / "model.safetensors").write_bytes(b"weight")
    assert find(place) is None
    assert "model.safetensors has 6 bytes, 7 committed" in caplog.text
    (aside,) = place.folder("policy").parent.glob(".corrupt-policy-*")
    assert (aside / "model.safetensors").read_bytes() == b"weight"
    assert str(aside) in caplog.text
    publish(place)
    assert len(list(place.folder("policy").parent.glob(".corrupt-*"))) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"format": 1}', "\x00" * 80])
def test_a_torn_manifest_means_that_the_stage_never_happened(place, text):
    publish(place)
    (place.folder("policy") / "manifest.json").write_text(text)
    assert find(place) is None
    publish(place)


def test_a_manifest_whose_parts_were_changed_is_damage(place):
    made = publish(place)
    edit_manifest(place, parts=[made.parts[0].model_copy(update={"sha256": "0" * 64}).model_dump()])
    with pytest.raises(CorruptArtifact, match=f"says {made.digest}"):
        manifest.read_manifest(place.folder("policy"))
    assert find(place) is None


def test_a_manifest_of_another_format_is_not_damage_and_stays_where_it_is(place):
    publish(place)
    edit_manifest(place, format=2, something_new={})
    with pytest.raises(UnknownFormat, match="has format 2, this code reads 1"):
        find(place)
    assert (place.folder("policy") / "model.safetensors").is_file()
    assert not list(place.lineage_folder.rglob(".corrupt-*"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"stage": "reward"}, "stage: recorded 'policy', asked 'reward'"),
        ({"inputs": {"samples": "b"}}, "inputs.samples: recorded 'a', asked 'b'"),
        ({"inputs": {}}, "inputs.samples: recorded 'a', asked nothing"),
        ({"config": {"rate": 0.2, "ks": [1, 8]}}, "config.rate: recorded 0.1, asked 0.2"),
        ({"config": {"rate": 0.2, "ks": [1, 8]}}, "config.ks[1]: recorded 4, asked 8"),
        ({"config": {"rate": 0.1, "ks": [1]}}, "config.ks: recorded [1, 4], asked [1]"),
        ({"seed": None}, "seed: recorded 3, asked None"),
    ],
)
def test_other_inputs_or_settings_are_named_key_by_key(place, changes, named):
    made = publish(place)
    with pytest.raises(ProvenanceMismatch) as error:
        find(place, PROVENANCE.model_copy(update=changes))
    assert named in str(error.value)
    assert "--lineage NAME" in str(error.value)
    assert find(place) == made


def test_settings_that_agree_are_not_named():
    assert differences({"a": {"b": 1, "c": [1, {"d": 2}]}}, {"a": {"b": 1, "c": [1, {"d": 2}]}}) == []
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ["a.c: recorded 2, asked 3"]


def test_a_tuple_in_the_settings_is_the_list_that_it_becomes(place):
    made = commits.publish(
        place, place.folder("policy"), write, Provenance(stage="p", inputs={}, config={"ks": (1, 2)})
    )
    assert find(place, Provenance(stage="p", inputs={}, config={"ks": (1, 2)})).digest == made.digest


def test_the_code_that_wrote_a_stage_is_recorded_and_not_compared(place, monkeypatch):
    made = publish(place)
    assert made.code == manifest.code()
    monkeypatch.setattr(commits, "code", lambda: manifest.Code(version="9", commit="other"))
    assert find(place) == made


def test_a_machine_without_git_records_an_unknown_commit(monkeypatch):
    def absent(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", absent)
    assert manifest.code.__wrapped__().commit == "unknown"


def test_times_sort_as_strings_like_the_times_they_are():
    start = datetime.fromisoformat(manifest.utc_now())
    assert start.utcoffset() == timedelta(0)
    times = [start.replace(microsecond=0) + timedelta(seconds=seconds) for seconds in (14, 13.5, 13)]
    written = [time.isoformat(timespec="microseconds") for time in times]
    assert sorted(written, reverse=True) == written
    assert len(manifest.utc_now()) == len(written[0])


PARTS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text("0123456789abcdef", min_size=1), min_size=1
)


@given(PARTS, st.randoms())
def test_the_digest_does_not_depend_on_the_order_of_the_parts(parts, random):
    shuffled = list(parts.items())
    random.shuffle(shuffled)
    assert digest_of_parts(shuffled) == digest_of_parts(parts.items())


@given(PARTS, PARTS)
def test_two_different_sets_of_parts_have_different_digests(one, other):
    assert (digest_of_parts(one.items()) == digest_of_parts(other.items())) is (one == other)


@pytest.mark.parametrize(
    "other",
    [
        [("a", "1")],
        [("a", "1"), ("b", "3")],
        [("a", "1"), ("c", "2")],
        [("a", "2"), ("b", "1")],
        [("a", "1b"), ("b", "2")],
        [("a:1", ""), ("b", "2")],
        [("a", "1"), ("b", "2"), ("c", "3")],
    ],
)
def test_the_digest_changes_with_every_name_and_every_byte(other):
    assert digest_of_parts(other) != digest_of_parts([("a", "1"), ("b", "2")])


def test_a_section_can_not_leave_the_store(place):
    with pytest.raises(ValueError, match="section"):
        place.at(iteration=1, section="../elsewhere")
    with pytest.raises(ValueError, match="lineage name"):
        Place(root=place.root, lineage="../x", token=1)
