"""One vLLM server for the contract, over a tiny policy; started once, since a start takes a minute."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.policy.characters import build_tokenizer
from tasks.policy.config import ScratchPolicy
from tasks.policy.loading import load_model, load_tokenizer, save_model
from tasks.policy.scratch import initialise
from tasks.rollout.config import VllmEngineConfig
from tasks.rollout.engine import GroupRequest, PolicyWeights
from tasks.rollout.vllm_engine import VllmEngine, VllmServers
from tasks.values.seeds import derive_seed

# Heads of 32: the CPU build of vLLM has no kernels for smaller ones.
TINY = ScratchPolicy(kind="scratch", hidden_size=64, num_heads=2, num_layers=2, initializer_range=0.3)
CONFIG = VllmEngineConfig.model_validate(
    {"kind": "vllm", "server": {"cpu_kv_cache_gib": 1, "max_concurrent_requests": 32}}
)


def silent(done: int, total: int) -> None:
    return None


def request(name: str, prompt: tuple[int, ...], samples: int = 4) -> GroupRequest:
    return GroupRequest(name, f"p-{name}", prompt, "7", tuple(derive_seed(name, index) for index in range(samples)))


def weights_of(folder: Path, log_folder: Path) -> PolicyWeights:
    return PolicyWeights(load_model(folder, device="cpu"), load_tokenizer(folder), folder.name, folder, log_folder)


def below(pid: int) -> list[int]:
    """The processes below a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *below(child)]
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two checkpoints of one tiny architecture."""
    found = []
    for seed, name in enumerate(("first", "second")):
        folder = tmp_path_factory.mktemp(name)
        tokenizer = build_tokenizer(TINY.max_positions)
        save_model(initialise(TINY, tokenizer, seed=seed), tokenizer, folder)
        found.append(folder)
    return found


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServers]:
    log_folder = tmp_path_factory.mktemp("logs")
    found = VllmServers(CONFIG, log_folder)
    yield found
    found.close()
    assert os.listdir(log_folder) == ["vllm-server.log"]


@pytest.fixture
def engine(servers: VllmServers, tiny: list[Path], tmp_path: Path) -> VllmEngine:
    """The engine over the first checkpoint."""
    return VllmEngine(weights_of(tiny[0], tmp_path), CONFIG, servers)
