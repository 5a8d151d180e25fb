"""What `igrpo deploy` decides by itself: who keeps the worker, and when the deployments have to be written."""

from pathlib import Path

from flows import deploying
from flows.deploying import claim_worker, deployments_version


def test_one_process_keeps_the_worker_of_a_store_and_gives_it_up_when_it_ends(tmp_path):
    first = claim_worker(tmp_path)
    assert first is not None
    assert claim_worker(tmp_path) is None
    first.close()
    assert claim_worker(tmp_path) is not None


def test_the_deployments_are_written_again_when_file_or_form_or_folder_changed(tmp_path, monkeypatch):
    before = deployments_version()
    assert deployments_version() == before
    changed = tmp_path / "prefect.yaml"
    changed.write_text(deploying.PREFECT_FILE.read_text() + "\n")
    with monkeypatch.context() as patch:
        patch.setattr(deploying, "PREFECT_FILE", changed)
        assert deployments_version() != before
    monkeypatch.setattr(deploying, "PROJECT", Path("/elsewhere"))
    assert deployments_version() != before


def test_a_store_is_named_so_that_a_run_finds_it_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("IGRPO_HOME", "store")
    assert deploying._store(tmp_path) == str(tmp_path)
    monkeypatch.setenv("IGRPO_HOME", "s3://bucket/store")
    assert deploying._store(tmp_path) == "s3://bucket/store"
