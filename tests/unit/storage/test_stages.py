"""What the stages of an iteration measured, and the report beside them."""

from pathlib import Path

import pytest

from storage import checkpoints, reports, stages, tables
from storage.errors import CorruptArtifact
from storage.manifest import Provenance


def commit(place, iteration, section, table, **metrics):
    here = place.at(iteration=iteration, section=section)
    return tables.publish(here, table, [], Provenance(stage=table, inputs={}), metrics=metrics)


def measured(place, iteration=1):
    return stages.measured(Path(place.root), place.lineage, iteration)


def test_every_committed_folder_gives_its_numbers_by_section(place):
    commit(place, 1, "", "prompts", num=1.0)
    commit(place, 1, "step-001", "completions", num_rows=2.0)
    commit(place, 1, "step-001", "samples", num_groups=3.0)
    commit(place, 1, "evaluation", "evaluation", accuracy=0.5)
    commit(place, 2, "step-001", "completions", num_rows=9.0)
    assert measured(place) == {
        "": {"prompts": {"num": 1.0}},
        "step-001": {"completions": {"num_rows": 2.0}, "samples": {"num_groups": 3.0}},
        "evaluation": {"evaluation": {"accuracy": 0.5}},
    }
    assert measured(place, 3) == {}


def test_the_numbers_of_a_step_outlive_its_weights(place):
    here = place.at(iteration=1, section="step-001")

    def write(folder):
        (folder / "model.safetensors").write_bytes(b"w")

    ref = checkpoints.publish(here, "policy", write, Provenance(stage="policy", inputs={}), metrics={"kl": 0.25})
    checkpoints.prune(here, ref)
    assert measured(place)["step-001"]["policy"] == {"kl": 0.25}


def test_unfinished_and_damaged_folders_do_not_count_and_a_damaged_manifest_is_named(place):
    commit(place, 1, "step-001", "completions", num_rows=2.0)
    folder = place.at(iteration=1, section="step-001").folder("completions")
    for name in (".tmp-samples-1", ".corrupt-samples-1"):
        folder.with_name(name).mkdir()
        (folder.with_name(name) / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    (folder.parent / "rewards").mkdir()
    assert set(measured(place)["step-001"]) == {"completions"}
    (folder / "manifest.json").write_text("{")
    with pytest.raises(CorruptArtifact, match="not JSON"):
        measured(place)


def test_a_report_is_rewritten_freely_and_leaves_nothing_else(place):
    root = Path(place.root)
    for page in (b"one", b"two"):
        path = reports.write_report(root, place.lineage, 3, page)
    assert path == place.at(iteration=3).folder("report.html") == reports.report_path(root, place.lineage, 3)
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
