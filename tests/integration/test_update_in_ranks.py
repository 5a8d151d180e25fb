"""The loop with its policy updates in two ranks: a killed rank, a killed driver, and the run that goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, Cli

pytestmark = [pytest.mark.orchestration, pytest.mark.ranks]

SHORT = ("--iterations", "1", "--set", "num_steps=1", "--set", "machine.num_processes=2")

# Imported by every Python process that finds it first on its path. Rank 1 dies by SIGKILL in its second update.
KILLER = """
import os, signal, sys
seen = 0
class Late:
    def find_spec(self, name, path=None, target=None):
        if name == "tasks.grpo.trainer":
            sys.meta_path.remove(self)
            from tasks.runtime.optimiser import Optimiser
            plain = Optimiser.update
            def update(self):
                global seen
                seen += 1
                if seen == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                return plain(self)
            Optimiser.update = update
if os.environ.get("RANK") == "1":
    sys.meta_path.insert(0, Late())
"""


def alive(store):
    """Processes that run over this store, which all of them inherit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"IGRPO_HOME={store}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def gone_within(store, seconds):
    deadline = time.monotonic() + seconds
    while alive(store) and time.monotonic() < deadline:
        time.sleep(0.1)
    return alive(store) == []


def policy_digest(store):
    manifest = json.loads((store / "small" / "iteration-0001" / "step-001" / "policy" / "manifest.json").read_text())
    return manifest["digest"]


@pytest.fixture(scope="module")
def undisturbed(prefect_url, recipe, tmp_path_factory):
    cli = Cli(tmp_path_factory.mktemp("undisturbed"), prefect_url)
    done = cli("run", str(recipe), *SHORT)
    assert done.returncode == 0, done.stderr
    return cli.store


def test_the_loop_runs_in_two_ranks_and_leaves_what_one_process_reads(undisturbed, recipe, prefect_url):
    step = undisturbed / "small" / "iteration-0001" / "step-001"
    assert {path.name for path in (step / "policy").iterdir()} >= {"model.safetensors", "trainer", "tokenizer.json"}
    assert (step / "ranks.log").is_file()
    done = Cli(undisturbed, prefect_url)("run", str(recipe), "--iterations", "1", "--set", "num_steps=1")
    assert done.returncode == 0, done.stderr  # the next iteration, in one process: machine is not part of the recipe
    later = json.loads((undisturbed / "small" / "iteration-0002" / "step-001" / "policy" / "manifest.json").read_text())
    assert later["metrics"]["num_updates_total"] == 8


def test_after_a_killed_rank_and_a_killed_driver_the_rerun_ends_like_an_undisturbed_run(
    undisturbed, recipe, prefect_url, tmp_path
):
    (tmp_path / "sitecustomize.py").write_text(KILLER)
    cli = Cli(tmp_path / "store", prefect_url)
    done = cli("run", str(recipe), *SHORT, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    step = cli.store / "small" / "iteration-0001" / "step-001"
    reason = "rank 1 was killed by SIGKILL (by the system when memory ran out, or by hand)"
    assert f"{reason}; see {step / 'ranks.log'}" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert alive(cli.store) == []
    assert not (step / "policy").exists()

    command = [sys.executable, "-m", "flows.cli", "run", str(recipe), *SHORT]
    with (tmp_path / "out").open("w") as out:
        driver = subprocess.Popen(command, cwd=ROOT, env=cli.env, stdout=out, stderr=out, start_new_session=True)
    try:
        assert wait_for_ranks(cli.store, driver) == 2
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    assert gone_within(cli.store, 20)
    assert not (step / "policy").exists()

    done = cli("run", str(recipe), *SHORT)
    assert done.returncode == 0, done.stderr
    assert policy_digest(cli.store) == policy_digest(undisturbed)


def wait_for_ranks(store, driver):
    """The number of ranks at work, once both are there."""
    deadline = time.monotonic() + 200
    found = 0
    while found < 2 and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        found = 0
        for pid in alive(store):
            try:
                found += b"tasks.runtime.rank_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                pass
    return found
