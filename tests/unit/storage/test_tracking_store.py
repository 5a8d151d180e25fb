"""MLflow under a store: one database per store, whole or absent, and nothing that belongs to somebody else."""

import errno
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from storage import checkpoints, delivery, files, lineage_pages, lock, mlflow_client, registry, tables, tracking
from storage.errors import StorageError
from storage.manifest import Provenance
from storage.mlflow_client import of

ROOT = Path(__file__).parents[3]
OPEN = "import sys; from pathlib import Path; from storage.mlflow_client import client; client(Path(sys.argv[1]))"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One database for the module, in a folder whose name needs quoting in a URL."""
    root = tmp_path_factory.mktemp("store") / "my 100% 저장소"
    root.mkdir()
    mlflow_client.client(root)
    return root


@pytest.fixture
def lineage(store):
    with lock.hold(store, f"lineage-{secrets.token_hex(4)}") as place:
        yield place


def open_run(place, **params):
    return tracking.ensure_run(place, name="iteration", tags={}, params=params)


def policy(place, content=b"w"):
    def write(folder):
        (folder / "model.safetensors").write_bytes(content)

    return checkpoints.publish(place, "policy", write, Provenance(stage="policy", inputs={}))


def register(place, ref, run):
    return registry.register(place, ref, run_id=run, tags={}, description="a sentence")


def path_environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_two_stores_in_one_process_keep_their_records_apart(store, tmp_path):
    shutil.copy(store / "mlflow.db", tmp_path / "mlflow.db")
    first, second = mlflow_client.client(store), mlflow_client.client(tmp_path)
    experiment = second.create_experiment(f"only-here-{secrets.token_hex(4)}")
    assert second.get_experiment(experiment).name not in {each.name for each in first.search_experiments()}
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_a_given_tracking_uri_is_used_and_left_as_it_was(monkeypatch, store, tmp_path):
    given = f"sqlite:///{store / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert mlflow_client.client(tmp_path).tracking_uri == given
    assert os.environ["MLFLOW_TRACKING_URI"] == given
    assert not (tmp_path / "mlflow.db").exists()


def test_a_kill_while_the_database_is_made_leaves_a_store_that_opens(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", OPEN, str(tmp_path)], cwd=tmp_path, env=path_environment())
    while not list(tmp_path.glob(f"{files.ASIDE}mlflow.db-*")):
        assert child.poll() is None
        time.sleep(0.01)
    time.sleep(1.0)  # some of the migrations have run
    child.kill()
    assert child.wait() == -9
    assert not (tmp_path / "mlflow.db").exists()
    both = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(tmp_path)], cwd=tmp_path, env=path_environment())
        for _ in range(2)
    ]
    assert [each.wait() for each in both] == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow.db", "mlflow.db.lock"]


def test_importing_storage_does_not_import_mlflow():
    code = "import sys; from storage import registry, tracking, lineage_pages; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=path_environment(), check=False).returncode == 0


def test_closing_the_runs_of_a_store_without_a_record_makes_no_database(place):
    delivery.close(place, "FAILED")
    assert not (Path(place.root) / "mlflow.db").exists()


def test_an_experiment_that_is_not_this_store_s_is_refused(store):
    with lock.hold(store, "Default") as place, pytest.raises(StorageError, match="another lineage name"):
        tracking.ensure_experiment(place)


def test_an_experiment_whose_creation_is_sent_twice_is_one(lineage, monkeypatch):
    client = of(lineage)
    once = client.create_experiment
    monkeypatch.setattr(client, "create_experiment", lambda *a, **k: (once(*a, **k), once(*a, **k)))
    assert client.get_experiment(tracking.ensure_experiment(lineage)).name == lineage.lineage


def test_a_deleted_experiment_is_restored_with_its_runs(lineage):
    run = open_run(lineage)
    experiment = tracking.ensure_experiment(lineage)
    of(lineage).delete_experiment(experiment)
    assert tracking.ensure_experiment(lineage) == experiment
    assert open_run(lineage) == run


def test_a_parameter_that_changed_is_told_beside_the_first(lineage):
    run = open_run(lineage, lr="0.1", steps="2")
    open_run(lineage, lr="0.2", steps="2")
    data = of(lineage).get_run(run).data
    assert data.params == {"lr": "0.1", "steps": "2"}
    assert json.loads(data.tags[tracking.CHANGED_PARAMS]) == {"lr": "0.2"}


def test_a_profile_with_nan_is_still_json_for_a_browser(lineage):
    ref = tables.publish(lineage, "evaluation", [], Provenance(stage="evaluation", inputs={}))
    run = open_run(lineage)
    tracking.log_dataset(lineage, run, ref, context="evaluation", profile={"accuracy": float("nan")})
    (found,) = of(lineage).get_run(run).inputs.dataset_inputs

    def refuse(word):
        raise AssertionError(word)

    profile = json.loads(found.dataset.profile, parse_constant=refuse)
    assert (profile["accuracy"], profile["num_rows"], profile["sha256"]) == ("nan", 0, ref.digest)


def test_a_model_that_was_rebuilt_differently_gets_a_version_of_its_own(lineage):
    run = open_run(lineage)
    first = register(lineage, policy(lineage, b"one"), run)
    shutil.rmtree(lineage.folder("policy"))
    second = register(lineage, policy(lineage, b"two"), run)
    assert (first.version, second.version) == ("1", "2")
    digests = [info.tags["grpo.digest"] for info in registry.versions(Path(lineage.root), lineage.lineage, "policy")]
    assert digests == [first.digest, second.digest]


def test_across_file_systems_the_files_are_copied_and_readable(lineage, monkeypatch, tmp_path):
    source = policy(lineage)

    def refuse(*_):
        raise OSError(errno.EXDEV, "other device")

    monkeypatch.setattr(os, "link", refuse)
    usual = os.umask(0o077)
    try:
        registry.link_files(Path(source.uri), tmp_path / "model")
    finally:
        os.umask(usual)
    copied = tmp_path / "model" / "model.safetensors"
    assert copied.read_bytes() == b"w"
    assert copied.stat().st_mode & 0o777 == 0o644


def test_a_full_disk_is_an_error_and_not_a_reason_to_copy(lineage, monkeypatch, tmp_path):
    source = policy(lineage)

    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="full"):
        registry.link_files(Path(source.uri), tmp_path / "model")


def test_linking_again_leaves_the_files_that_are_there(lineage, tmp_path):
    source = Path(policy(lineage).uri)
    registry.link_files(source, tmp_path / "model")
    linked = tmp_path / "model" / "model.safetensors"
    before = linked.parent.stat().st_mtime_ns
    registry.link_files(source, tmp_path / "model")
    assert linked.samefile(source / "model.safetensors")
    assert linked.parent.stat().st_mtime_ns == before


def test_an_output_that_was_logged_twice_by_a_retry_is_no_error(lineage, monkeypatch):
    client = of(lineage)
    once = client.log_outputs
    monkeypatch.setattr(client, "log_outputs", lambda *a: (once(*a), once(*a)))
    run = open_run(lineage)
    assert register(lineage, policy(lineage), run).version == "1"
    assert len(client.get_run(run).outputs.model_outputs) == 1


def test_an_alias_moves_and_a_missing_one_is_none(lineage):
    run, later = open_run(lineage), lineage.at(iteration=1)
    ref = policy(lineage)
    first, second = register(lineage, ref, run), register(later, ref, open_run(later))
    assert registry.alias_version(lineage, "policy", "current") is None
    for ref in (first, second):
        registry.set_alias(lineage, ref, "current")
        assert registry.alias_version(lineage, "policy", "current") == ref.version


@pytest.mark.parametrize("alias", ["latest", "v1", "V12"])
def test_the_aliases_of_mlflow_itself_are_refused(lineage, alias):
    ref = policy(lineage).model_copy(update={"version": "1"})
    with pytest.raises(ValueError, match="reserved"):
        registry.set_alias(lineage, ref, alias)


def test_the_runs_that_used_a_version_are_found_by_search(lineage):
    ref = register(lineage, policy(lineage), open_run(lineage))
    later = open_run(lineage.at(iteration=1))
    registry.log_consumed(lineage, later, [ref])
    uri = registry.model_uri(lineage.lineage, ref)
    found = of(lineage).search_runs([tracking.ensure_experiment(lineage)], f"tags.`grpo.policy` = '{uri}'")
    assert [run.info.run_id for run in found] == [later]


def test_rows_that_do_not_fit_a_description_are_counted():
    text = lineage_pages.describe("one sentence", {f"table {i}": "x" * 200 for i in range(40)}, "#used")
    assert len(text) <= lineage_pages.MAX_CHARACTERS
    assert text.startswith("one sentence\n")
    shown = text.count("| table ")
    assert f"| and {40 - shown} more |" in text
    assert shown >= 20
    assert text.endswith("(#used) |\n")


def test_a_page_is_shown_on_its_iteration_s_run_and_replaced(lineage, tmp_path):
    run = open_run(lineage)
    other = open_run(lineage.at(iteration=1))
    page = tmp_path / "report.html"
    for text in ("one", "two"):
        page.write_text(text)
        tracking.log_page(lineage, page)
    assert [each.path for each in of(lineage).list_artifacts(run)] == ["report.html"]
    assert Path(of(lineage).download_artifacts(run, "report.html")).read_text() == "two"
    assert of(lineage).list_artifacts(other) == []
