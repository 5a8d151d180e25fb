"""A store that was moved or copied goes on with its own MLflow records; another store's are left alone."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from storage import lineages, lock, relocation

ROOT = Path(__file__).parents[3]


def database(root, *locations):
    """The part of MLflow's tables that is looked at, with an experiment per (name, location)."""
    root.mkdir(exist_ok=True)
    path = root / "mlflow.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE experiments (name TEXT, artifact_location TEXT)")
        connection.execute("CREATE TABLE runs (artifact_uri TEXT)")
        connection.execute("CREATE TABLE datasets (dataset_source TEXT)")
        connection.executemany("INSERT INTO experiments VALUES (?, ?)", locations)
        for _, location in locations:
            connection.execute("INSERT INTO runs VALUES (?)", (f"{location}/run/artifacts",))
            source = f'{{"uri": "{location.removesuffix("/mlflow")}/iteration-0000/prompts"}}'
            connection.execute("INSERT INTO datasets VALUES (?)", (source,))
    return path


def rows(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return [row[-1] for row in connection.execute(f"SELECT * FROM {table}")]


def lineage(root, name="quick"):
    with lock.hold(root, name) as place:
        lineages.record_recipe(place, {"name": "r"})


def test_every_address_below_the_old_root_is_that_below_the_new_one(tmp_path, caplog):
    path = database(tmp_path / "new", ("quick", "file:///gone/with%20space/quick/mlflow"))
    lineage(tmp_path / "new")
    assert relocation.relocate(path) == 3
    assert rows(path, "experiments") == [f"{(tmp_path / 'new').as_uri()}/quick/mlflow"]
    assert rows(path, "runs") == [f"{(tmp_path / 'new').as_uri()}/quick/mlflow/run/artifacts"]
    assert "moved from /gone/with space to" in caplog.text
    assert relocation.relocate(path) == 0


def test_the_sources_of_data_sets_follow(tmp_path):
    path = database(tmp_path / "new", ("quick", "file:///gone/quick/mlflow"))
    lineage(tmp_path / "new")
    assert relocation.relocate(path) == 3
    assert rows(path, "datasets") == [f'{{"uri": "{(tmp_path / "new").as_uri()}/quick/iteration-0000/prompts"}}']


def test_a_neighbour_whose_name_begins_alike_is_left_alone(tmp_path):
    other = "file:///gone-too/quick2/mlflow"
    path = database(tmp_path / "new", ("quick", "file:///gone/quick/mlflow"), ("quick2", other))
    lineage(tmp_path / "new")
    relocation.relocate(path)
    assert rows(path, "experiments")[1] == other


@pytest.mark.parametrize("has_database", [True, False], ids=["copied", "shared"])
def test_a_copy_of_a_store_goes_its_own_way_and_a_shared_database_does_not(tmp_path, has_database):
    old = tmp_path / "old"
    old.mkdir()
    path = database(tmp_path / "new", ("quick", f"{old.as_uri()}/quick/mlflow"))
    lineage(tmp_path / "new")
    if has_database:
        shutil.copy(path, old / "mlflow.db")
    assert relocation.relocate(path) == (3 if has_database else 0)


def test_a_lineage_that_this_store_does_not_have_is_left_alone(tmp_path):
    path = database(tmp_path / "new", ("quick", "file:///gone/quick/mlflow"))
    assert relocation.relocate(path) == 0


def test_a_moved_store_records_its_next_iteration(tmp_path):
    """In processes of their own: a connection to MLflow lasts as long as its process."""
    code = """
import sys
from pathlib import Path
from storage import iterations, lineages, lock, registry, tracking
sys.path.insert(0, "tests/unit/storage")
from conftest import model
root, iteration = Path(sys.argv[1]), int(sys.argv[2])
with lock.hold(root, "quick") as place:
    if iteration == 0:
        lineages.record_recipe(place, {"name": "r"})
    here = place.at(iteration=iteration)
    run = tracking.ensure_run(here, name="x", tags={}, params={})
    ref = registry.register(here, model(here, "policy"), run_id=run, tags={}, description="d")
    print(ref.version, [version.version for version in registry.versions(root, "quick", "policy")])
"""
    command = [sys.executable, "-c", code]

    def run(root, iteration):
        done = subprocess.run(
            [*command, str(root), str(iteration)], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    assert run(tmp_path / "old", 0) == "1 [1]"
    (tmp_path / "old").rename(tmp_path / "new")
    assert run(tmp_path / "new", 1) == "2 [1, 2]"
    linked = sorted((tmp_path / "new" / "quick" / "mlflow").rglob("model.safetensors"))
    assert len(linked) == 2
    assert not (tmp_path / "old").exists()
