"""Checkpoints: data only, verified on opening, pruned without losing their record."""

import io
import json
import os
import pickle
import stat
from pathlib import Path

import pytest
import safetensors.torch
import torch

from storage import checkpoints, lock
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


def assert_refused(place, name, data):
    def write_it(folder):
        write(folder)
        (folder / "trainer" / name).write_bytes(data)

    with pytest.raises(ValueError, match=rf"{name} is a pickle or a program; save safetensors"):
        publish(place, write_it)
    assert not place.folder("policy").exists()
    assert not list(place.lineage_folder.rglob(".tmp-*"))


FORMATS = ["weights.pt", "model.bin", "state.pkl", "a.pth", "b.pickle", "c.ckpt", "MODEL.BIN", "d.npy", "modeling.py"]


@pytest.mark.parametrize("name", FORMATS)
def test_pickles_and_programs_are_refused_by_name_and_leave_nothing(place, name):
    assert_refused(place, name, b"x")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_whatever_it_is_called(place, protocol):
    assert_refused(place, "optimiser", pickle.dumps({"step": 1}, protocol=protocol))


def test_what_torch_saves_is_refused_whatever_it_is_called(place):
    saved = io.BytesIO()
    torch.save({"w": torch.zeros(1)}, saved)
    assert_refused(place, "model.safetensors", saved.getvalue())
    assert_refused(place, "weights", saved.getvalue())


def test_safetensors_are_taken_even_when_their_length_looks_like_a_pickle(place):
    # The file begins with the length of its header; 0x280 is b"\x80\x02", which begins a pickle too.
    for filler in range(700):
        data = safetensors.torch.save({"w": torch.zeros(1)}, {"filler": "x" * filler})
        if data.startswith(b"\x80\x02"):
            break
    assert data.startswith(b"\x80\x02")
    ref = publish(place, lambda folder: (folder / "model.safetensors").write_bytes(data))
    assert checkpoints.open_folder(ref).joinpath("model.safetensors").read_bytes() == data


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
    with pytest.raises(PrunedCheckpoint, match="delete the folder and run again"):
        checkpoints.open_folder(ref)
    assert checkpoints.prune(place, ref) == 0


def test_a_bit_that_changed_after_a_good_opening_is_seen_by_the_next_process(place):
    ref = publish(place)
    assert checkpoints.open_folder(ref) == place.folder("policy")
    (place.folder("policy") / "trainer" / "optimiser.json").write_text("[]")
    checkpoints._verified.clear()
    with pytest.raises(CorruptArtifact, match=r"optimiser.json has sha256"):
        checkpoints.open_folder(ref)


def test_the_checkpoints_of_another_lineage_are_not_pruned(place):
    with lock.hold(Path(place.root), "other") as other:
        ref = publish(other)
        with pytest.raises(ValueError, match="is not of lineage 'lineage'"):
            checkpoints.prune(place, ref)
        assert checkpoints.open_folder(ref) == other.folder("policy")


def test_a_run_that_lost_its_lineage_prunes_nothing(place):
    ref = publish(place)
    (place.lineage_folder / "holder.json").write_text(json.dumps({"token": place.token + 1}))
    with pytest.raises(LostLock):
        checkpoints.prune(place, ref)
    assert checkpoints.open_folder(ref).joinpath("model.safetensors").is_file()


def test_the_policies_of_an_iteration_s_steps_go_but_for_the_one_to_keep(place):
    here = place.at(iteration=1)
    refs = [publish(here.at(iteration=1, section=f"step-{number:03d}")) for number in (1, 2, 3)]
    other = publish(place.at(iteration=2, section="step-001"))
    assert checkpoints.prune_steps(here, [refs[2]]) == 2 * (len(b"weights") + len(b"{}"))
    for ref in refs[:2]:
        with pytest.raises(PrunedCheckpoint):
            checkpoints.open_folder(ref)
    for ref in (refs[2], other):
        assert checkpoints.open_folder(ref).joinpath("model.safetensors").is_file()
    assert checkpoints.prune_steps(here, [refs[2]]) == 0


def test_critics_of_steps_go_too(place):
    here = place.at(iteration=1)
    kept, gone = (
        checkpoints.publish(
            here.at(iteration=1, section=f"step-{number:03d}"), "critic", write, Provenance(stage="critic", inputs={})
        )
        for number in (1, 2)
    )
    checkpoints.prune_steps(here, [kept])
    assert checkpoints.open_folder(kept).is_dir()
    with pytest.raises(PrunedCheckpoint):
        checkpoints.open_folder(gone)
