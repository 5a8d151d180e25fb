"""One Prefect server for the whole session, and a small recipe that runs the complete loop in seconds."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.environment import DEFAULTS
from flows.servers import free_port, prefect_command, start_guarded, stop, wait_until_healthy

ROOT = Path(__file__).parents[2]

RECIPE = """
name = "small"
seed = 5
num_iterations = 2
num_steps = 2

[prompts]
source = { kind = "arithmetic", num_prompts = 40 }
num_heldout = 8

[policy]
kind = "scratch"
hidden_size = 16
intermediate_size = 16
num_layers = 1
num_heads = 1
warm_start = { num_updates = 4, batch_size = 4 }

[rollout]
prompts_per_step = 4
group_size = 4
sampling = { max_new_tokens = 16 }
engine = { kind = "scripted", script = ["<answer>{answer}</answer>", "<answer>1</answer>", "<think>1</think>", "2"] }

[scoring]
correctness = "exact"
reward_model_weight = 0.1
verifiers = [{ kind = "exact" }, { kind = "format", weight = 0.0 }]

[update]
kl = { beta = 0.01 }
num_epochs = 2
minibatch_completions = 8
optimiser = { learning_rate = 1e-3 }

[reward_model]
num_initial_prompts = 16
training = { optimiser = { learning_rate = 1e-3 }, batch_labels = 4 }

[evaluation]
num_samples = 4

[machine]
num_threads = 1
"""


@pytest.fixture(scope="session")
def prefect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prefect")
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    log = home / "server.log"
    process = start_guarded(prefect_command(port), log, {**DEFAULTS, "PREFECT_HOME": str(home), "PREFECT_API_URL": url})
    try:
        wait_until_healthy(process, f"{url}/health", log, name="Prefect")
        yield url
    finally:
        stop(process)


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "small.toml"
    path.write_text(RECIPE)
    return path


class Cli:
    """The command line in a process of its own, over one store."""

    def __init__(self, store: Path, prefect_url: str) -> None:
        self.store = store
        self.env = {**os.environ, "IGRPO_HOME": str(store), "PREFECT_API_URL": prefect_url, "COLUMNS": "160"}
        self.env["PREFECT_HOME"] = str(store / "prefect")

    def __call__(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *arguments],
            cwd=ROOT,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="session")
def uninterrupted(prefect_url: str, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A store in which the small recipe ran its two iterations without a stop."""
    cli = Cli(tmp_path_factory.mktemp("straight"), prefect_url)
    done = cli("run", str(recipe))
    assert done.returncode == 0, done.stderr + done.stdout
    return cli
