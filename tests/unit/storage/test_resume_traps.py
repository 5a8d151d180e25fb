"""What other trainers got wrong when they resumed, held against our storage: each case with its hand-worked answer."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, iterations, manifest, tables
from storage.manifest import Provenance

ROWS = [
    {
        "prompt_id": str(number), "num_samples": 1, "num_scored": 1, "num_correct": 1, "pass_at_1": 1.0,
        "greedy_correct": None, "reward_model_mean": None,
    }
    for number in range(3)
]  # fmt: skip


def test_a_stage_that_fails_twice_before_its_commit_and_is_tried_again_has_its_rows_once(place):
    """A task with two retries that appends a row leaves three of them: prefect issue 15760 and others like it."""
    provenance = Provenance(stage="evaluation", inputs={"policy": "d"})
    attempts = []

    @task(cache_policy=NO_CACHE, retries=2)
    def stage():
        if found := tables.find(place, "evaluation", provenance):
            return found
        attempts.append(len(attempts))
        with checkpoints.commits.files.folder_aside(place.folder("evaluation")) as aside:
            (aside / "part-00000.parquet").write_bytes(b"half")
            if len(attempts) < 3:
                raise OSError("died in the middle")
        return tables.publish(place, "evaluation", ROWS, provenance)

    for _ in range(2):
        with pytest.raises(OSError, match="in the middle"):
            stage.fn()
    ref = stage.fn()
    assert stage.fn() == ref
    assert (len(attempts), tables.read(ref)) == (3, ROWS)
    assert [path.name for path in place.folder("evaluation").parent.iterdir()] == ["evaluation"]


def test_the_same_folder_with_other_bytes_in_is_not_the_old_result(place):
    """A cache keyed by the path gives the old answer; a key of the content does not."""
    first = tables.publish(place, "evaluation", ROWS, Provenance(stage="evaluation", inputs={"file": "1" * 64}))
    with pytest.raises(manifest.ProvenanceMismatch, match=r"inputs\.file: recorded '1{64}', asked '2{64}'"):
        tables.find(place, "evaluation", Provenance(stage="evaluation", inputs={"file": "2" * 64}))
    assert tables.find(place, "evaluation", Provenance(stage="evaluation", inputs={"file": "1" * 64})) == first


def test_times_sort_like_the_moments_that_they_name(monkeypatch):
    """Newest first 14, 13.5, 13; written without a fixed precision the strings sort 14, 13, 13.5."""
    moments = [datetime(2026, 1, 1, 0, 0, 13, 500_000, UTC), datetime(2026, 1, 1, 0, 0, 14, 0, UTC)]
    moments.append(datetime(2026, 1, 1, 0, 0, 13, 0, UTC))

    class Clock:
        @staticmethod
        def now(zone):
            return given.astimezone(zone)

    monkeypatch.setattr(manifest, "datetime", Clock)
    written = {}
    for given in moments:
        written[manifest.utc_now()] = given.second + given.microsecond / 1e6
    assert [written[text] for text in sorted(written, reverse=True)] == [14.0, 13.5, 13.0]
    assert {len(text) for text in written} == {len("2026-01-01T00:00:13.500000+00:00")}


def test_the_newest_is_by_number_and_complete_not_by_name_or_time(place, finish):
    """Among 9, 10, 100 a sort of names takes 9; among finished and unfinished ones a sort of times the unfinished."""
    for iteration in range(101):
        finish(place, iteration)
    for name in ("iteration-0200.tmp", "notes", "iteration-0150"):
        (place.lineage_folder / name / "policy").mkdir(parents=True)
    found = iterations.latest_record(Path(place.root), "lineage")
    assert found is not None
    assert found.iteration == 100
    weights = Path(found.policy.uri) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    found = iterations.latest_record(Path(place.root), "lineage")
    assert found is not None
    assert found.iteration == 99


def test_a_finished_run_is_not_overwritten_by_another_in_its_folder(place, finish):
    finish(place, 0)
    before = {path: path.read_bytes() for path in place.lineage_folder.rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError, match="already committed"):
        tables.publish(place, "pairs", [], Provenance(stage="pairs", inputs={"other": "x"}))
    assert {path: path.read_bytes() for path in before} == before


def test_the_digest_of_a_table_does_not_depend_on_the_order_in_which_its_parts_were_written(place, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_PER_PART", 1)
    ref = tables.publish(place, "evaluation", ROWS, Provenance(stage="evaluation", inputs={}))
    folder = Path(ref.uri)
    parts = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
    for name in sorted(parts, reverse=True):  # another order in the folder, newest first
        (folder / name).unlink()
        (folder / name).write_bytes(parts[name])
    (folder / "a-note.txt").write_text("not part of it")
    assert tables.read(ref) == ROWS
    assert [part["name"] for part in json.loads((folder / "manifest.json").read_text())["parts"]] == sorted(parts)
