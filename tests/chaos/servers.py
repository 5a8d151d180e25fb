"""The Prefect and MLflow servers that runs report to: started by the harness, killed, and started again at their address."""

import signal
import socket
import subprocess
import threading
from pathlib import Path

from flows.environment import DEFAULTS
from flows.servers import free_port, prefect_command, start_guarded, stop, wait_until_healthy
from flows.ui import mlflow_command, mlflow_environment
from tests.chaos import processes

HOST = "127.0.0.1"


class Server:
    """A server at one address; ``kill`` ends it and all below it by SIGKILL."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start it (again, over the same data), and wait until it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        command, env, health = self._plan()
        log = self.home / f"{self.name}-server.log"
        self._process = start_guarded(command, log, {**DEFAULTS, **env})
        wait_until_healthy(self._process, f"{self.url}{health}", log, name=self.name)

    def _plan(self) -> tuple[list[str], dict[str, str], str]:
        if self.name == "prefect":
            env = {"PREFECT_HOME": str(self.home / "prefect"), "PREFECT_API_URL": f"{self.url}/api"}
            return prefect_command(self.port), env, "/api/health"
        return mlflow_command(self.home, self.port), mlflow_environment(self.home), "/health"

    def kill(self) -> int:
        """SIGKILL to each of its processes; gives how many were alive."""
        assert self._process is not None
        below = processes.descendants(self._process.pid)
        killed = sum(processes.kill(each, signal.SIGKILL) for each in below)
        self.stop()
        return killed

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)
            self._process = None


class Silent:
    """An address that takes connections and never answers: what a server that hangs looks like."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        self.num_connections = 0
        self._held: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            self.num_connections += 1
            self._held.append(connection)

    def close(self) -> None:
        self._listener.close()
        for connection in self._held:
            connection.close()
