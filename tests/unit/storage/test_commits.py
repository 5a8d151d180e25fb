"""A crash at every point of a commit leaves nothing or all of it; one run per lineage."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from storage import files, lineages, lock, tables
from storage.errors import LineageBusy
from storage.manifest import Provenance
from storage.refs import Place

ROOT = Path(__file__).parents[3]
PROVENANCE = Provenance(stage="evaluation", inputs={})
ROWS = [
    {
        "prompt_id": "p",
        "num_samples": 1,
        "num_scored": 1,
        "num_correct": 1,
        "pass_at_1": 1.0,
        "greedy_correct": True,
        "reward_model_mean": None,
    }
]

CHILD = """
import os, signal, sys
from pathlib import Path
from storage import commits, files, lock, tables
from storage.manifest import Provenance
from tests.unit.storage.test_commits import PROVENANCE, ROWS
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
point = sys.argv[2]
targets = {
    "before the parts": (tables.pq, "write_table"), "before the manifest": (commits, "write_manifest"),
    "before the token": (commits, "require_token"), "before the flush": (files, "fsync_tree"),
}
if point in targets: setattr(*targets[point], die)
if point == "inside a part":
    tables.pq.write_table = lambda table, path, **k: (Path(path).write_bytes(b"PAR1 half"), die())
if point == "before the rename": Path.rename = die
if point == "after the rename": files.fsync_folder = lambda folder: die() if folder.name != "lineage" else None
with lock.hold(Path(sys.argv[1]), "lineage") as place:
    if point == "after the rename": files.fsync_tree = lambda folder: None
    tables.publish(place, "evaluation", ROWS, PROVENANCE)
"""

POINTS = [
    "before the parts", "inside a part", "before the manifest", "before the token", "before the flush",
    "before the rename", "after the rename",
]  # fmt: skip


def run_child(code, *arguments):
    child = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    return child.returncode, child.stderr


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_inside_a_commit_leaves_nothing_or_everything(tmp_path, point):
    code, stderr = run_child(CHILD, str(tmp_path), point)
    assert code == -signal.SIGKILL, stderr
    with lock.hold(tmp_path, "lineage") as place:
        found = tables.find(place, "evaluation", PROVENANCE)
        assert (found is not None) is (point == "after the rename")
        lineages.sweep(place)
        assert not any(path.name.startswith(files.ASIDE) for path in tmp_path.rglob("*"))
        ref = found or tables.publish(place, "evaluation", ROWS, PROVENANCE)
        assert tables.read(ref) == ROWS


def test_a_second_run_is_refused_names_the_first_and_touches_nothing(place):
    before = sorted((path, path.stat().st_mtime_ns) for path in place.lineage_folder.rglob("*"))
    for refused in (
        lambda: lock.hold(Path(place.root), "lineage").__enter__(),
        lambda: lock.probe(Path(place.root), "lineage"),
    ):
        with pytest.raises(LineageBusy, match=f"process {os.getpid()} on "):
            refused()
    assert sorted((path, path.stat().st_mtime_ns) for path in place.lineage_folder.rglob("*")) == before


def test_two_lineages_of_one_store_run_side_by_side(place):
    with lock.hold(Path(place.root), "other") as other:
        assert other.lineage_folder != place.lineage_folder


def test_a_killed_holder_leaves_a_free_lineage_and_a_lower_token(tmp_path):
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from storage import lock
        with lock.hold(Path(sys.argv[1]), "lineage"): os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert run_child(script, str(tmp_path))[0] == -signal.SIGKILL
    lock.probe(tmp_path, "lineage")
    with lock.hold(tmp_path, "lineage") as place:
        assert place.token == 2


def test_children_of_the_holder_do_not_inherit_the_lock(tmp_path):
    with lock.hold(tmp_path, "lineage"):
        child = subprocess.Popen(["sleep", "30"])
    try:
        with lock.hold(tmp_path, "lineage") as place:
            assert place.token == 2
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("name", ["a/b", "..", "", "a b", "-x", "x" * 65, "ü", ".hidden"])
def test_a_lineage_name_that_is_no_plain_name_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="lineage name"), lock.hold(tmp_path, name):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_section_can_not_leave_the_store(place):
    with pytest.raises(ValueError, match="section"):
        place.at(iteration=1, section="../elsewhere")
    with pytest.raises(ValueError, match="lineage name"):
        Place(root=place.root, lineage="../x", token=1)
