"""MLflow: one run, one model, one version per iteration, however often and wherever it was interrupted."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from storage import checkpoints, lock, registry, tables, tracking
from storage.manifest import Provenance
from storage.mlflow_client import client, of, tracking_uri

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One database for the module: making it takes seconds."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def lineage(store):
    """A lineage of its own for each test, in the shared store."""
    with lock.hold(store, f"lineage-{secrets.token_hex(4)}") as place:
        yield place


def policy(place, content=b"w"):
    def write(folder):
        (folder / "model.safetensors").write_bytes(content)
        (folder / "trainer").mkdir()
        (folder / "trainer" / "optimiser.json").write_text("{}")

    return checkpoints.publish(place, "policy", write, Provenance(stage="policy", inputs={}))


def open_run(place, **params):
    return tracking.ensure_run(place, name="iteration", tags={"grpo.stage": "iteration"}, params=params)


def status(place, run):
    return of(place).get_run(run).info.status


def test_opening_again_gives_the_same_run_and_a_changed_parameter_does_no_harm(lineage):
    run = open_run(lineage, lr="0.1")
    assert open_run(lineage, lr="0.2", other="x") == run
    assert of(lineage).get_run(run).data.params == {"lr": "0.1", "other": "x"}


def test_another_run_that_still_runs_is_dead_and_marked_so(lineage):
    old = open_run(lineage.at(iteration=1))
    new = open_run(lineage.at(iteration=2))
    assert (status(lineage, old), status(lineage, new)) == ("KILLED", "RUNNING")
    assert open_run(lineage.at(iteration=1)) == old
    assert status(lineage, old) == "RUNNING"


def test_a_failing_run_ends_failed_and_a_finished_one_stays_finished(lineage):
    done = open_run(lineage.at(iteration=1))
    tracking.finish_run(lineage, done)
    broken = open_run(lineage.at(iteration=2))
    tracking.close_runs(lineage, "FAILED")
    assert (status(lineage, done), status(lineage, broken)) == ("FINISHED", "FAILED")


def test_closing_without_an_experiment_makes_none_and_warns_of_nothing(lineage, caplog):
    tracking.close_runs(lineage, "FAILED")
    assert caplog.text == ""
    assert of(lineage).get_experiment_by_name(lineage.lineage) is None


def test_a_metric_that_is_logged_again_stands_once(lineage):
    run = open_run(lineage)
    for _ in range(2):
        left_out = tracking.log_metrics(
            lineage, run, {"loss": 0.5, "bad": float("nan")}, step=3, created_at="2026-01-02T03:04:05.678901+00:00"
        )
    history = of(lineage).get_metric_history(run, "loss")
    assert [(each.value, each.step) for each in history] == [(0.5, 3)]
    assert left_out == 1


def test_a_table_is_attached_by_its_own_digest(lineage):
    run = open_run(lineage)
    ref = tables.publish(lineage, "evaluation", [], Provenance(stage="evaluation", inputs={}))
    for _ in range(2):
        tracking.log_dataset(lineage, run, ref, context="evaluation", profile={"iteration": 0})
    (found,) = of(lineage).get_run(run).inputs.dataset_inputs
    assert found.dataset.digest == ref.digest[:32]
    assert ref.digest in found.dataset.profile
    assert '"num_rows": 0' in found.dataset.profile


def register(place, ref, run):
    return registry.register(place, ref, run_id=run, tags={"grpo.parent": "models:/x/1"}, description="a sentence")


def test_a_version_has_the_files_of_the_store_without_a_copy(lineage):
    import mlflow

    run = open_run(lineage)
    ref = register(lineage, policy(lineage), run)
    registry.set_alias(lineage, ref, "current")
    assert ref.version == "1"
    (info,) = registry.versions(Path(lineage.root), lineage.lineage, "policy")
    assert info.aliases == ("current",)
    assert info.tags["grpo.digest"] == ref.digest
    assert info.tags["grpo.parent"] == "models:/x/1"
    folder = Path(
        mlflow.artifacts.download_artifacts(
            f"models:/{lineage.lineage}-policy@current", tracking_uri=tracking_uri(Path(lineage.root))
        )
    )
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]
    stored = Path(ref.uri) / "model.safetensors"
    assert (folder / "model.safetensors").stat().st_ino == stored.stat().st_ino


BREAKS = ["link_files", "finalize_logged_model", "log_outputs", "create_model_version", "search_model_versions"]


@pytest.mark.parametrize("point", BREAKS)
def test_a_crash_while_registering_ends_in_one_version_after_a_repeat(lineage, monkeypatch, point):
    run = open_run(lineage)
    ref = policy(lineage)
    owner = registry if point == "link_files" else of(lineage)
    with monkeypatch.context() as broken:

        def crash(*args, **kwargs):
            raise RuntimeError("crash")

        broken.setattr(owner, point, crash)
        with pytest.raises(RuntimeError, match="crash"):
            register(lineage, ref, run)
    first = register(lineage, ref, run)
    assert register(lineage, ref, run) == first
    assert len(registry.versions(Path(lineage.root), lineage.lineage, "policy")) == 1
    assert len(of(lineage).get_run(run).outputs.model_outputs) == 1


def test_a_creation_that_is_sent_twice_leaves_one_of_each(lineage, monkeypatch):
    client = of(lineage)
    for name in ("create_run", "create_logged_model", "create_model_version"):
        once = getattr(client, name)
        monkeypatch.setattr(client, name, lambda *a, once=once, **k: (once(*a, **k), once(*a, **k))[1])
    run = open_run(lineage)
    ref = register(lineage, policy(lineage), run)
    assert ref.version == "1"
    experiment = client.get_experiment_by_name(lineage.lineage).experiment_id
    assert len(client.search_runs([experiment])) == 1
    assert len(client.search_logged_models([experiment])) == 1
    assert len(registry.versions(Path(lineage.root), lineage.lineage, "policy")) == 1


def test_an_unchanged_model_still_gets_the_version_of_its_iteration(lineage):
    ref = policy(lineage)
    versions = [register(lineage.at(iteration=i), ref, open_run(lineage.at(iteration=i))).version for i in range(3)]
    assert versions == ["1", "2", "3"]


def test_the_models_that_a_run_read_are_its_inputs(lineage):
    run = open_run(lineage)
    ref = register(lineage, policy(lineage), run)
    later = open_run(lineage.at(iteration=1))
    for _ in range(2):
        tracking.log_model_inputs(lineage, later, [registry.model_id(lineage, ref)])
    (found,) = of(lineage).get_run(later).inputs.model_inputs
    assert found.model_id == registry.model_id(lineage, ref)


def test_a_kill_while_the_database_is_made_leaves_a_store_that_opens(tmp_path):
    code = (
        "import sys, os, signal, threading, time; from pathlib import Path; from storage.mlflow_client import client\n"
        "import sqlite3, mlflow\n"
        "def die():\n"
        "    while not list(Path(sys.argv[1]).glob('.tmp-*')): time.sleep(0.005)\n"
        "    time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)\n"
        "threading.Thread(target=die).start(); client(Path(sys.argv[1]))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    assert killed.returncode == -9
    assert not (tmp_path / "mlflow.db").exists()
    client(tmp_path).create_experiment("after")
    assert client(tmp_path).get_experiment_by_name("after") is not None
    assert not list(tmp_path.glob(".tmp-*"))


def test_two_processes_may_open_a_fresh_store_at_once(tmp_path):
    code = "import sys; from pathlib import Path; from storage.mlflow_client import client; client(Path(sys.argv[1]))"
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, env=os.environ) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert not (ROOT / "mlflow.db").exists()
    assert not (ROOT / "mlruns").exists()
