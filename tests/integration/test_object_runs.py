"""The whole loop on an object store, killed, and gone on with by a machine that has nothing but the address."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from storage import working_copy
from storage.home import store_root
from tests.integration.conftest import ROOT, Cli
from tests.object_server import BUCKET, s3_server

pytestmark = pytest.mark.orchestration

URL = f"s3://{BUCKET}/nightly"
LOCK_SECONDS = 3


def digests(store):
    """The digest of every committed table and checkpoint; records hold times and are left out."""
    found = {}
    for path in sorted(store.glob("small/iteration-*/**/manifest.json")):
        manifest = json.loads(path.read_text())
        if manifest["provenance"]["stage"] != "record":
            found[str(path.parent.relative_to(store))] = (manifest["digest"], manifest["num_rows"])
    return found


@pytest.fixture(scope="module")
def server():
    with s3_server() as env:
        yield env


class ObjectCli(Cli):
    """The command line over the bucket, from a machine with one cache folder."""

    def __init__(self, cache, prefect_url, server):
        self.root = store_root({"IGRPO_HOME": URL, "IGRPO_CACHE": str(cache)}, ROOT)
        super().__init__(self.root, prefect_url)
        self.env |= {**server, "IGRPO_HOME": URL, "IGRPO_CACHE": str(cache), "IGRPO_LOCK_SECONDS": str(LOCK_SECONDS)}

    def kill_once(self, recipe, key):
        """Start a run and kill it as soon as the bucket holds ``key``."""
        command = [sys.executable, "-m", "flows.cli", "run", str(recipe)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=ROOT, env=self.env, start_new_session=True, **quiet)
        store, deadline = working_copy.store_behind(self.root), time.monotonic() + 240
        try:
            while key not in store.list(key):
                assert process.poll() is None, "it ended by itself"
                assert time.monotonic() < deadline, f"no {key}"
                time.sleep(0.1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_killed_run_goes_on_from_the_bucket_alone(uninterrupted, prefect_url, recipe, server, tmp_path):
    cli = ObjectCli(tmp_path / "cache", prefect_url, server)
    cli.kill_once(recipe, "small/iteration-0001/step-002/completions/manifest.json")
    again = cli(
        "run", str(recipe), "--set", "num_steps=3"
    )  # refused before anything: and the lock is no hindrance here
    assert again.returncode == 2, again.stderr
    assert "num_steps: recorded 2, asked 3" in again.stderr
    shutil.rmtree(tmp_path / "cache")
    cli = ObjectCli(tmp_path / "cache", prefect_url, server)
    time.sleep(LOCK_SECONDS + 2)  # to the store this is another machine: the dead run's lock has to expire
    done = cli("run", str(recipe))
    assert done.returncode == 0, done.stderr + done.stdout

    assert f"lineage small in {URL} (working copy {cli.root})" in " ".join(done.stdout.split())
    assert digests(cli.root) == digests(uninterrupted.store)
    listed = working_copy.store_behind(cli.root).list("small/")
    assert {key.removesuffix("/manifest.json") for key in listed if key.endswith("/manifest.json")} == {
        str(path.parent.relative_to(uninterrupted.store))
        for path in uninterrupted.store.glob("small/iteration-*/**/manifest.json")
    }
    assert "small/request.json" not in listed

    shutil.rmtree(tmp_path / "cache")
    fresh = ObjectCli(tmp_path / "cache", prefect_url, server)
    shown = fresh("lineage", "small")
    assert shown.returncode == 0, shown.stderr
    assert "small-policy" in shown.stdout
    assert "v3 iteration 2" in shown.stdout
    for secret in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        kept = [path for path in tmp_path.rglob("*") if path.is_file() and server[secret].encode() in path.read_bytes()]
        assert kept == []
        assert server[secret] not in done.stdout + done.stderr + shown.stdout


def test_a_bucket_that_does_not_answer_fails_the_run_in_one_line(prefect_url, recipe, server, tmp_path):
    cli = ObjectCli(tmp_path / "cache", prefect_url, {**server, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    failed = cli("run", str(recipe))
    assert failed.returncode == 1
    assert "can not be reached or written after at most 5 tries (EndpointConnectionError)" in " ".join(
        failed.stderr.split()
    )
