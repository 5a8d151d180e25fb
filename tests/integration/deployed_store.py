"""What `igrpo deploy` keeps up over one store, and the API that the UI and the schedule use."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from tasks.runtime.guarded import free_port

ROOT = Path(__file__).parents[2]
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
LINEAGE = "small"


def wait_for(what, seconds, every=0.3):
    """The first true answer of ``what``; an assertion that names it when the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(every)
    raise AssertionError(f"{getattr(what, '__doc__', None) or what} not within {seconds} s")


def children(pid):
    """Processes below ``pid``, by id and command line."""
    below = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            below.setdefault(parent, []).append((int(entry.name), command))
    found, waiting = [], [pid]
    while waiting:
        for child, command in below.get(waiting.pop(), []):
            found.append((child, command))
            waiting.append(child)
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Deployed:
    """`igrpo deploy` in a process of its own, over ``store``."""

    def __init__(self, store):
        self.store = store
        self.out = store / "deploy.out"
        ports = ["--prefect-port", str(free_port()), "--mlflow-port", str(free_port())]
        self.url = f"http://127.0.0.1:{ports[1]}/api"
        self.env = {**os.environ, "IGRPO_HOME": str(store), "PREFECT_HOME": str(store / "prefect"), "COLUMNS": "160"}
        self.env |= {"PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2", "PREFECT_WORKER_QUERY_SECONDS": "1"}
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.cli", "deploy", *ports], cwd=ROOT, env=self.env, stdout=out, stderr=out
            )
        self.http = httpx.Client(base_url=self.url, timeout=90)

    def wait_until_up(self):
        def is_up():
            assert self.process.poll() is None, self.out.read_text()
            return "Ctrl-C stops" in self.out.read_text()

        wait_for(is_up, 240)

    def cli(self, *arguments):
        return self._run([sys.executable, "-m", "flows.cli", *arguments])

    def prefect(self, *arguments):
        return self._run([sys.executable, "-m", "prefect", *arguments])

    def _run(self, command):
        env = {**self.env, "PREFECT_API_URL": self.url}
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)

    def post(self, path, body):
        return self.http.post(path, json=body)

    def deployment(self, name):
        found = self.http.get(f"/deployments/name/{name}")
        assert found.status_code == 200, found.text
        return found.json()

    def start(self, name, request, tags=(), late_by=timedelta(0)):
        """What the UI's "Run" does; the answer may be a refusal."""
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": (datetime.now(UTC) - late_by).isoformat()}}
        body = {"parameters": {"request": request}, "state": state, "tags": list(tags)}
        return self.post(f"/deployments/{self.deployment(name)['id']}/create_flow_run", body)

    def run_of(self, flow_run):
        return self.http.get(f"/flow_runs/{flow_run}").json()

    def end_of(self, flow_run, seconds=300):
        """(type, name, message) of the state that the run ended in."""

        def ended():
            state = self.run_of(flow_run)["state"]
            return state if state["type"] in ENDED else None

        state = wait_for(ended, seconds)
        return state["type"], state["name"], state["message"] or ""

    def runs(self, **filters):
        return self.post("/flow_runs/filter", {"flow_runs": filters, "sort": "START_TIME_DESC"}).json()

    def stop(self):
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
