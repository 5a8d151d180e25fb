"""Checkpoints: data only, verified on opening, pruned without losing their record."""

import json
import os
import stat

import pytest

from storage import checkpoints
from storage.errors import CorruptArtifact, LostLock, PrunedCheckpoint
from storage.manifest import Provenance

PROVENANCE = Provenance(stage="policy", inputs={"samples": "s"})


def write(folder):
    (folder / "model.safetensors").write_bytes(b"weights")
    os.chmod(folder / "model.safetensors", 0o600)
    (folder / "trainer").mkdir()
    (folder / "trainer" / "optimiser.json").write_text("{}")


def publish(place, write=write):
    return checkpoints.publish(place, "policy", write, PROVENANCE, metrics={"loss": 0.5})


def test_a_checkpoint_is_found_and_opens_to_its_files(place):
    ref = publish(place)
    assert checkpoints.find(place, "policy", PROVENANCE) == ref
    folder = checkpoints.open_folder(ref)
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert checkpoints.metrics_of(ref) == {"loss": 0.5}
    assert stat.S_IMODE((folder / "model.safetensors").stat().st_mode) == 0o644


@pytest.mark.parametrize("name", ["weights.pt", "model.bin", "state.pkl"])
def test_pickle_formats_are_refused_and_leave_nothing(place, name):
    with pytest.raises(ValueError, match=name):
        publish(place, lambda folder: (folder / name).write_bytes(b"x"))
    assert not place.folder("policy").exists()


def test_changed_weights_are_refused_by_name(place):
    ref = publish(place)
    checkpoints._verified.clear()
    (place.folder("policy") / "model.safetensors").write_bytes(b"Weights")
    with pytest.raises(CorruptArtifact, match=r"model.safetensors has sha256"):
        checkpoints.open_folder(ref)


def test_weights_one_byte_short_do_not_count_as_done(place):
    publish(place)
    (place.folder("policy") / "model.safetensors").write_bytes(b"weight")
    assert checkpoints.find(place, "policy", PROVENANCE) is None


def test_a_ref_of_other_weights_is_refused(place):
    ref = publish(place)
    with pytest.raises(CorruptArtifact, match="the reference names 00"):
        checkpoints.open_folder(ref.model_copy(update={"digest": "00"}))


def test_pruning_keeps_the_record_and_says_what_is_gone(place):
    ref = publish(place)
    assert checkpoints.prune(place, ref) == len(b"weights") + len(b"{}")
    assert checkpoints.find(place, "policy", PROVENANCE) == ref
    assert checkpoints.metrics_of(ref) == {"loss": 0.5}
    assert [path.name for path in place.folder("policy").iterdir()] == ["manifest.json"]
    with pytest.raises(PrunedCheckpoint):
        checkpoints.open_folder(ref)
    assert checkpoints.prune(place, ref) == 0


def test_a_run_that_lost_its_lineage_prunes_nothing(place):
    ref = publish(place)
    (place.lineage_folder / "holder.json").write_text(json.dumps({"token": place.token + 1}))
    with pytest.raises(LostLock):
        checkpoints.prune(place, ref)
    assert checkpoints.open_folder(ref).joinpath("model.safetensors").is_file()
