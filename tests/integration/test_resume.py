"""Killed again and again, between stages and inside them: the end is that of a run that was never stopped."""

import json
import signal

import pytest

from storage import registry
from storage.mlflow_client import client
from tests.integration.conftest import Cli

pytestmark = pytest.mark.orchestration

# Imported by every Python process that finds it first on its path. The run dies by SIGKILL at the given event.
KILLER = """
import os, signal, sys
POINT, COUNT = os.environ["KILL_AT"].rsplit(":", 1)
seen = 0
def die_at(name):
    global seen
    if name == POINT:
        seen += 1
        if seen == int(COUNT):
            os.kill(os.getpid(), signal.SIGKILL)
def before(owner, attribute, name):
    plain = getattr(owner, attribute)
    def patched(*args, **kwargs):
        die_at(name)
        return plain(*args, **kwargs)
    setattr(owner, attribute, patched)
def after(owner, attribute, name):
    plain = getattr(owner, attribute)
    def patched(*args, **kwargs):
        result = plain(*args, **kwargs)
        die_at(name)
        return result
    setattr(owner, attribute, patched)
class Late:
    def find_spec(self, name, path=None, target=None):
        if name == "tasks.report":
            sys.meta_path.remove(self)
            from storage import commits, files, registry, tables
            from tasks.runtime.optimiser import Optimiser
            before(commits, "publish", "before a stage commits")
            after(tables.pq, "write_table", "with a part written")
            before(files, "commit_folder", "before the rename")
            after(files, "commit_folder", "after the rename")
            before(Optimiser, "update", "inside an update")
            before(registry, "link_files", "while registering")
            before(registry, "set_alias", "before an alias")
            from storage import lineages, summaries
            before(summaries, "write_summary", "before the summary")
            before(lineages, "close_request", "before the end")
sys.meta_path.insert(0, Late())
"""

POINTS = [
    "before a stage commits:1",
    "after the rename:2",
    "with a part written:2",
    "before the rename:2",
    "inside an update:2",
    "while registering:1",
    "after the rename:3",
    "inside an update:3",
    "before a stage commits:3",
    "with a part written:2",
    "before the rename:3",
    "before an alias:2",
    "after the rename:3",
    "inside an update:2",
    "while registering:2",
    "before the summary:2",
    "before the end:1",
]


def digests(store):
    """The digest of every committed table and checkpoint; records hold times and are left out."""
    found = {}
    for path in sorted(store.glob("small/iteration-*/**/manifest.json")):
        manifest = json.loads(path.read_text())
        if manifest["provenance"]["stage"] != "record":
            found[str(path.parent.relative_to(store))] = (manifest["digest"], manifest["num_rows"])
    return found


def test_seventeen_kills_change_nothing(prefect_url, recipe, tmp_path_factory, tmp_path):
    straight = Cli(tmp_path_factory.mktemp("unbroken"), prefect_url)
    assert straight("run", str(recipe)).returncode == 0
    (tmp_path / "sitecustomize.py").write_text(KILLER)
    killed = Cli(tmp_path_factory.mktemp("killed"), prefect_url)
    for point in POINTS:
        done = killed("run", str(recipe), KILL_AT=point, PYTHONPATH=str(tmp_path))
        assert done.returncode == -signal.SIGKILL, f"{point}: {done.returncode} {done.stderr}"
    done = killed("run", str(recipe))
    assert done.returncode == 0, done.stderr

    assert digests(killed.store) == digests(straight.store)
    assert len(digests(straight.store)) > 45
    assert not list(killed.store.glob("small/**/.tmp-*"))
    assert not list(killed.store.glob("small/**/.corrupt-*"))
    summaries = [json.loads((each.store / "small" / "summary.json").read_text()) for each in (straight, killed)]
    for summary in summaries:
        for row in summary["iterations"]:
            del row["seconds"]
    assert summaries[0] == summaries[1]
    assert [row["iteration"] for row in summaries[1]["iterations"]] == [1, 2]
    for path in sorted(straight.store.glob("small/iteration-*/report.html")):
        assert (killed.store / path.relative_to(straight.store)).read_bytes() == path.read_bytes()
    for role in ("policy", "reward"):
        assert [each.version for each in registry.versions(killed.store, "small", role)] == [1, 2, 3]
    mlflow = client(killed.store)
    runs = mlflow.search_runs([mlflow.get_experiment_by_name("small").experiment_id])
    assert sorted(run.data.tags["grpo.iteration"] for run in runs) == ["0", "1", "2"]
    assert {run.info.status for run in runs} == {"FINISHED"}
