"""A whole run with vLLM, killed once on the way."""

import os
import signal
import subprocess
import sys
import time

import pytest

from storage import tables
from tests.integration.conftest import RECIPE, ROOT, Cli, prefect_url
from tests.vllm.conftest import below, name_of

pytestmark = [pytest.mark.vllm, pytest.mark.orchestration]

__all__ = ["prefect_url"]  # the fixture

SCRIPTED = RECIPE[RECIPE.index("engine = {") : RECIPE.index("[scoring]")]
VLLM = 'engine = { kind = "vllm", server = { cpu_kv_cache_gib = 1, max_concurrent_requests = 16 } }\n\n'
WITH_VLLM = RECIPE.replace(SCRIPTED, VLLM).replace("hidden_size = 16", "hidden_size = 32")
SECONDS = 300


def is_alive(pid):
    return bool(name_of(pid))


def wait_for(what, condition):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {SECONDS} s for {what}")


def test_a_killed_run_leaves_no_process_and_the_same_command_finishes_it(prefect_url, tmp_path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(WITH_VLLM)
    cli = Cli(tmp_path / "store", prefect_url)
    arguments = ["run", str(recipe), "--iterations", "1"]
    driver = subprocess.Popen([sys.executable, "-m", "flows.cli", *arguments], cwd=ROOT, env=cli.env)
    started = wait_for(
        "the first completions", lambda: list(cli.store.glob("small/iteration-0000/*/completions/manifest.json"))
    )
    assert started
    children = below(driver.pid)
    assert any("EngineCore" in name_of(pid) for pid in children)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_for("the end of every process of the run", lambda: not any(map(is_alive, children)))

    done = cli(*arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    log = cli.store / "small" / "logs" / "vllm-server.log"
    assert log.read_text().count("Starting vLLM server") == 2
    folder = cli.store / "small" / "iteration-0001"
    for step in ("step-001", "step-002"):
        ref = tables.ref_at(folder / step / "completions")
        metrics = tables.metrics_of(ref)
        assert metrics["num_completions"] == 16
        assert metrics["num_rejected_reloads"] == metrics["num_engine_restarts"] == 0
        assert all(row["sampler_logprobs"] for row in tables.read(ref))
        print(step, {name: value for name, value in metrics.items() if "parity" in name or "engine" in name})
    updated = tables.metrics_of(tables.ref_at(folder / "step-002" / "completions"))
    assert updated["parity_max_difference"] < 1e-3
    assert updated["num_engine_starts"] == 0
