"""Stores that earlier commits wrote (tests/golden/stores/README.md says which): whole, read in today's names, refused where newer."""

import json
import shutil
from pathlib import Path

import pytest

from flows.config import PipelineConfig
from storage import checkpoints, iterations, lineages, lock, tables, verification
from storage.errors import UnknownFormat
from storage.schemas import schema_of
from tasks.reward.head import RewardModel

GOLDEN = Path(__file__).parents[2] / "golden" / "stores"
SCHEMAS = {"schema-1": 1, "schema-2": 2}


@pytest.fixture(params=SCHEMAS)
def store(request, tmp_path):
    """A copy at another place than where it was written."""
    shutil.copytree(GOLDEN / request.param, tmp_path / "store")
    return request.param, tmp_path / "store"


def test_it_is_whole_and_really_old(store):
    name, root = store
    found = verification.verify_lineage(root, "small")
    assert found.faults == ()
    assert found.num_manifests > 20
    versions = {
        json.loads((folder / "manifest.json").read_text())["schema_version"]
        for folder in verification.committed_folders(root / "small")
    }
    assert versions == {SCHEMAS[name], None}
    assert json.loads((root / "small/iteration-0001/record/record.json").read_text()).get("format") is None


def test_its_recipe_parses_in_todays_names(store):
    recipe = lineages.read_recipe(store[1], "small")
    config = PipelineConfig.model_validate(recipe)
    assert (config.update.kl.beta, config.reward_model.training.batch_labels) == (0.01, 4)
    assert config.reward_model.labels.kind == "pairs"
    with lock.hold(store[1], "small") as place:
        lineages.record_recipe(place, config.model_dump(mode="json"))
    assert lineages.read_recipe(store[1], "small") == config.model_dump(mode="json")


def test_every_table_of_every_iteration_reads_under_todays_columns(store):
    _, root = store
    seen = set()
    for folder in verification.committed_folders(root / "small"):
        if json.loads((folder / "manifest.json").read_text())["schema_version"] is None:
            continue
        ref = tables.ref_at(folder)
        read = tables.read_arrow(ref)
        seen.add(ref.table)
        if ref.table != "rewards":
            assert read.schema == schema_of(ref.table)
        assert read.num_rows == ref.num_rows
    assert {"prompts", "completions", "rewards", "samples", "pairs", "mixed_pairs", "evaluation"} <= seen


def test_its_newest_iteration_can_be_gone_on_from(store):
    _, root = store
    records = iterations.records(root, "small")
    assert [record.iteration for record in records] == [0, 1]
    newest = iterations.latest_record(root, "small")
    assert newest == records[1]
    assert newest.tables["labels"].table == "pairs"
    assert newest.tables["reward_training"].table == "mixed_pairs"
    assert newest.policy.uri.startswith(str(root))
    assert RewardModel.load(checkpoints.open_folder(newest.reward), device="cpu").temperature == 1.0


def test_the_labels_keep_their_ids(store):
    _, root = store
    newest = iterations.latest_record(root, "small")
    rows = tables.read(newest.tables["labels"])
    assert rows
    assert all(len(row["label_id"]) > 8 for row in rows)
    assert len({row["label_id"] for row in rows}) == len(rows)


def test_a_record_that_a_later_version_wrote_is_refused_with_the_cure(store):
    _, root = store
    folder = root / "small/iteration-0001/record"
    fields = json.loads((folder / "record.json").read_text())
    with lock.hold(root, "small") as place:
        provenance = checkpoints.read_manifest(folder).provenance
        shutil.rmtree(folder)
        write = lambda aside: (aside / "record.json").write_text(json.dumps({**fields, "format": 3}))  # noqa: E731
        checkpoints.commits.publish(place, folder, write, provenance)
    with pytest.raises(UnknownFormat, match="format 3, this code reads 1 to 2; use the version of iterative-grpo"):
        iterations.latest_record(root, "small")
