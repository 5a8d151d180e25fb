"""`igrpo deploy`: servers, work pool, deployments, automations and a worker, each made only where it is missing."""

import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from flows import run_request
from flows.access import open_access
from flows.keeping import Kept, keep_up
from flows.servers import SERVERS_FILE, ServerError, is_healthy, read_servers
from flows.ui import start_servers
from tasks.runtime.guarded import start_guarded

PROJECT = Path(__file__).resolve().parent.parent
PREFECT_FILE = PROJECT / "deployments" / "prefect.yaml"
POOL = "igrpo"
VERSION = "IGRPO_DEPLOYMENTS_VERSION"
DEPLOY_TIMEOUT_SECONDS = 300.0
TRY = (
    "prefect deployment run bootstrap-lineage/bootstrap",
    "prefect deployment run iterate-lineage/iterate",
    "prefect deployment schedule ls iterate-lineage/iterate",
)


def deploy(out: Console, root: Path, limit: int, prefect_port: int, mlflow_port: int, host: str) -> None:
    """Bring up what is missing, say what there is to try, and keep up what was started until Ctrl-C.

    A second call finds everything, changes nothing, says so and ends.

    Args:
        limit: runs that the worker does at a time.
    """
    kept = _servers(out, root, prefect_port, mlflow_port, host)
    claim = claim_worker(root)
    try:
        changes = apply(out, root)
        if claim is not None:
            kept.append(start_worker(root, limit))
            out.print(f"worker   started, {limit} run(s) at a time; log {kept[-1].log}", highlight=False)
        if not changes and not kept:
            out.print("everything is there; nothing was changed")
        _say_what_to_try(out)
        if kept:
            out.print("Ctrl-C stops " + ", ".join(each.name for each in kept))
            keep_up(out, kept)
    finally:
        if any(each.name == "Prefect server" for each in kept):
            (root / SERVERS_FILE).unlink(missing_ok=True)
        for each in kept:
            if each.process.poll() is None:
                each.process.terminate()


def _servers(out: Console, root: Path, prefect_port: int, mlflow_port: int, host: str) -> list[Kept]:
    """The servers that had to be started: none where PREFECT_API_URL is set, or where they run over this store."""
    access = open_access(host, os.environ)
    os.environ.update(access.prefect_environment)
    if url := os.environ.get("PREFECT_API_URL"):
        if not is_healthy(f"{url}/health"):
            raise ServerError(f"PREFECT_API_URL={url} does not answer; start that server, or unset it")
        out.print(f"Prefect  {url} (PREFECT_API_URL)", highlight=False)
        return []
    noted = read_servers(root)
    if noted.get("prefect") and is_healthy(f"{noted['prefect']}/api/health", expected=b"true"):
        os.environ["PREFECT_API_URL"] = f"{noted['prefect']}/api"
        out.print(f"Prefect  {noted['prefect']}\nMLflow   {noted.get('mlflow', '')}", highlight=False)
        return []
    kept = start_servers(out, root, prefect_port, mlflow_port, access)
    os.environ["PREFECT_API_URL"] = f"{read_servers(root)['prefect']}/api"
    return kept


def apply(out: Console, root: Path) -> list[str]:
    """Work pool, deployments and automations as the file and the code say; gives what was changed."""
    from prefect.client.orchestration import get_client

    from flows import automations

    version = deployments_version()
    changes: list[str] = []
    with get_client(sync_client=True) as client:
        if not _pool_exists(client):
            _prefect(root, {}, "work-pool", "create", POOL, "--type", "process")
            changes.append(f"work pool {POOL} created")
        before = {_slug(each): each for each in _deployments(client)}
        if not before or {each.version for each in before.values()} != {version}:
            _prefect(
                root, {VERSION: version}, "--no-prompt", "deploy", "--all", "--prefect-file",
                str(PREFECT_FILE.relative_to(PROJECT)),
            )  # fmt: skip
            _keep_switches(client, before)
            changes.append("deployments written")
        evaluate = client.read_deployment_by_name(automations.EVALUATE).id
        for wanted in (automations.evaluate_after_retraining(evaluate), automations.crashed_without_heartbeat()):
            if automations.install(client, wanted):
                changes.append(f"automation {wanted.name!r} written")
    for change in changes:
        out.print(f"         {change}", highlight=False)
    return changes


def deployments_version() -> str:
    """What decides the deployments: the file, the form of their parameters, and the folder that runs find the code in."""
    forms = [
        model.model_json_schema()
        for model in (
            run_request.BootstrapRequest,
            run_request.IterateRequest,
            run_request.EvaluateRequest,
            run_request.RetrainRewardRequest,
            run_request.CollectGarbageRequest,
        )
    ]
    decided = [PREFECT_FILE.read_text(encoding="utf-8"), forms, str(PROJECT)]
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:16]


def _pool_exists(client: Any) -> bool:
    return any(pool.name == POOL for pool in client.read_work_pools())


def _deployments(client: Any) -> list[Any]:
    return [each for each in client.read_deployments() if each.work_pool_name == POOL]


def _slug(deployment: Any) -> str:
    return f"{deployment.flow_id}/{deployment.name}"


def _keep_switches(client: Any, before: dict[str, Any]) -> None:
    """Schedules that a person had turned on, or off, stay so: the file would set all of them back."""
    for deployment in _deployments(client):
        if (old := before.get(_slug(deployment))) is None:
            continue
        switches = {each.slug: each.active for each in old.schedules if each.slug}
        for schedule in deployment.schedules:
            wanted = switches.get(schedule.slug, schedule.active)
            if wanted != schedule.active:
                client.update_deployment_schedule(deployment.id, schedule.id, active=wanted)


def claim_worker(root: Path) -> IO[str] | None:
    """The right to keep this machine's worker over the store, for as long as the file is open; None when another has it.

    The server would call a worker online for a minute and more after it is gone; the kernel knows at once.
    """
    path = root / "prefect" / "worker.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    claim = path.open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        return None
    return claim


def start_worker(root: Path, limit: int) -> Kept:
    """A worker of this machine in a process group of its own; its runs work over ``root``."""
    log = root / "prefect" / "worker.log"
    command = [
        sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process",
        "--name", socket.gethostname(), "--limit", str(limit), "--install-policy", "never",
    ]  # fmt: skip

    def start() -> subprocess.Popen[bytes]:
        return start_guarded(command, log, {"IGRPO_HOME": _store(root), "PREFECT_LOGGING_LEVEL": "INFO"})

    return Kept("worker", start, log, start())


def _store(root: Path) -> str:
    """The store as a run finds it from any folder: an address as it was given, a folder absolute."""
    given = os.environ.get("IGRPO_HOME", "")
    return given if "://" in given else str(root)


def _prefect(root: Path, environment: dict[str, str], *arguments: str) -> None:
    """Run the prefect command from the root of the repository: entry points are looked for from there.

    Raises:
        ServerError: it failed; with what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=PROJECT,
        env={**os.environ, **environment, "IGRPO_HOME": _store(root)},
        capture_output=True,
        text=True,
        timeout=DEPLOY_TIMEOUT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise ServerError(f"`prefect {' '.join(arguments)}` ended with status {done.returncode}: {said}")


def _say_what_to_try(out: Console) -> None:
    url = os.environ["PREFECT_API_URL"]
    out.print("try", highlight=False)
    out.print(f"  export PREFECT_API_URL={url}", highlight=False)
    for command in TRY:
        out.print(f"  {command}", highlight=False, markup=False)
