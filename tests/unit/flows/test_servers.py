"""Servers that a run owns end with it, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import servers

ROOT = Path(__file__).parents[3]
WEB = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]


def answers(port, seconds=10.0, wanted=True):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if servers.is_healthy(f"http://127.0.0.1:{port}/") is wanted:
            return True
        time.sleep(0.05)
    return False


def test_a_server_starts_answers_and_stops(tmp_path):
    port = servers.free_port()
    process = servers.start_guarded([*WEB, str(port)], tmp_path / "log", {})
    servers.wait_until_healthy(process, f"http://127.0.0.1:{port}/", tmp_path / "log", name="web")
    servers.stop(process)
    assert answers(port, wanted=False)


def test_a_server_ends_with_a_parent_that_is_killed(tmp_path):
    port = servers.free_port()
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom flows import servers\n"
        f"servers.start_guarded({[*WEB, str(port)]!r}, Path({str(tmp_path / 'log')!r}), {{}})\n"
        "print('started', flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT)
    parent.stdout.readline()
    assert answers(port)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert answers(port, wanted=False)


def test_a_server_that_fails_names_its_log(tmp_path):
    process = servers.start_guarded([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log", {})
    with pytest.raises(servers.ServerError, match=r"status 3; see .*log"):
        servers.wait_until_healthy(process, "http://127.0.0.1:9/", tmp_path / "log", name="broken")
    servers.stop(process)


def test_a_torn_note_of_servers_is_no_note(tmp_path):
    assert servers.read_servers(tmp_path) == {}
    (tmp_path / servers.SERVERS_FILE).write_text('{"prefect": "htt')
    assert servers.read_servers(tmp_path) == {}


def test_an_address_that_is_set_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert servers.ensure_api(tmp_path) == servers.Api("configured", "http://127.0.0.1:9/api")


def test_what_is_looked_at_before_the_server_starts_does_not_import_prefect(tmp_path):
    """Prefect reads the address of its API when it is imported: before there is one it would find none."""
    script = (
        "import sys\n"
        "from flows.recipes import load_recipe\n"
        "from flows.running import _check_sources\n"
        "_check_sources(load_recipe('quickstart', []))\n"
        "assert 'prefect' not in sys.modules, 'prefect was imported'\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
