"""One vLLM server by its address: completions, weights, sleep."""

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakSet

import httpx

from tasks.rollout.engine import EngineError

CONTROL_TIMEOUT_SECONDS = 600.0
"""For loading weights and for sleep: large checkpoints take minutes."""
HEALTH_TIMEOUT_SECONDS = 5.0
NUM_HEALTH_TRIES = 3
NUM_RESET_TRIES = 20
SECONDS_BETWEEN_RESETS = 0.25
RELOAD = "reload_weights"
"""vLLM's own way of reading weights in place."""
RELOAD_AND_REPACK = "reload_and_repack"
"""Ours, in servers that this project starts (see ``serverside``)."""
DEV_MODE_CURE = "start it with VLLM_SERVER_DEV_MODE=1, and let nobody else reach its address"


class ReplicaFailed(Exception):
    """A server that did not answer, or answered that it is broken: another one, or a later try, may do better."""


class NotConnected(ReplicaFailed):
    """There was no server to ask: the request was not tried."""


class Replica:
    """A client of one server. Its methods may be called from several threads.

    Raises (all methods):
        ReplicaFailed: no answer, or a status of 500 or above. EngineError: any other status but 200; quotes the server.
    """

    def __init__(self, url: str, *, timeout_seconds: float, max_connections: int) -> None:
        self.url = url
        self._timeout = timeout_seconds
        self._sockets: WeakSet[socket.socket] = WeakSet()
        # Not by a proxy that the environment names: token ids stay on their way to the address that the recipe names.
        self._client = httpx.Client(
            base_url=url,
            timeout=httpx.Timeout(timeout_seconds, connect=HEALTH_TIMEOUT_SECONDS),
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections),
            trust_env=False,
        )

    def close(self) -> None:
        """Drop the connections; requests under way fail at once, and the server ends their work.

        Closing a socket does not wake a thread that reads from it; to shut it down does.
        """
        for connection in list(self._sockets):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended
                continue
        self._client.close()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets.add(info["return_value"].get_extra_info("socket"))

    def is_healthy(self) -> bool:
        """Whether the server says that it can work, at one of a few tries."""
        for _ in range(NUM_HEALTH_TRIES):
            try:
                if self._client.get("/health", timeout=HEALTH_TIMEOUT_SECONDS).status_code == httpx.codes.OK:
                    return True
            except httpx.ConnectError:
                return False
            except (httpx.TransportError, RuntimeError):  # RuntimeError: closed meanwhile
                continue
        return False

    def model(self) -> tuple[str, int]:
        """The name to ask for, and the context in tokens."""
        answer = self._json(self._ask("GET", "/v1/models"))
        try:
            first = answer["data"][0]
            return str(first["id"]), int(first["max_model_len"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(f"{self.url} serves no model that can be asked for completions: {answer}") from error

    def complete(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to one request for a completion."""
        return self._json(self._ask("POST", "/v1/completions", timeout=self._timeout, json=body))

    def weight_version(self) -> str:
        """The version that the server says its weights have; "" when it says none."""
        answer = self._json(self._ask("GET", "/weight_info", cure=DEV_MODE_CURE))
        return str(answer.get("weight_version") or "")

    def load_weights(self, folder: Path, version: str, method: str = RELOAD) -> None:
        """Read the weights of ``folder`` in place, then forget what was computed with the old ones, then say so.

        Args:
            method: of the server's workers; takes ``weights_path``.

        Raises:
            ReplicaFailed: also when the cached prefixes are still held after some tries.
        """
        load = {"method": method, "kwargs": {"weights_path": str(folder)}, "timeout": CONTROL_TIMEOUT_SECONDS}
        self._control("/collective_rpc", json=load)
        self._forget_prefixes()
        self.set_version(version)

    def _forget_prefixes(self) -> None:
        """The server refuses while a request holds a part of the cache: one that was dropped ends within moments."""
        for _ in range(NUM_RESET_TRIES):
            answer = self._json(self._control("/reset_prefix_cache"))
            if answer.get("success", False):
                return
            time.sleep(SECONDS_BETWEEN_RESETS)
        raise ReplicaFailed(f"{self.url} does not give up its cached prefixes, which belong to the old weights")

    def set_version(self, version: str) -> None:
        """Name the weights that the server holds."""
        self._control("/update_weight_version", json={"new_version": version})

    def sleep(self) -> None:
        """Weights to the host's memory, keys and values forgotten."""
        self._control("/sleep", params={"level": "1"})

    def wake_up(self) -> None:
        """Undo ``sleep``, whoever asked for that (a run that was killed, say)."""
        answer = self._json(self._ask("GET", "/is_sleeping", cure=DEV_MODE_CURE))
        if answer.get("is_sleeping", False):
            self._control("/wake_up")

    def _control(self, path: str, **arguments: Any) -> httpx.Response:
        return self._ask("POST", path, cure=DEV_MODE_CURE, **arguments)

    def _ask(
        self, method: str, path: str, *, cure: str = "", timeout: float = CONTROL_TIMEOUT_SECONDS, **arguments: Any
    ) -> httpx.Response:
        waits = httpx.Timeout(timeout, connect=HEALTH_TIMEOUT_SECONDS)
        try:
            answer = self._client.request(method, path, timeout=waits, extensions={"trace": self._trace}, **arguments)
        except (httpx.TransportError, RuntimeError) as error:
            raise ReplicaFailed(f"{self.url}{path}: {type(error).__name__}: {error}") from error
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise ReplicaFailed(f"{self.url}{path} answered {answer.status_code}: {answer.text[:500]}")
        if answer.status_code != httpx.codes.OK:
            advice = f"; {cure}" if cure and answer.status_code == httpx.codes.NOT_FOUND else ""
            raise EngineError(f"{self.url}{path} answered {answer.status_code}: {answer.text[:500]}{advice}")
        return answer

    def _json(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            found = answer.json()
        except ValueError as error:
            raise ReplicaFailed(f"{answer.url} answered something else than JSON: {answer.text[:200]!r}") from error
        if not isinstance(found, dict):
            raise EngineError(f"{answer.url} answered {type(found).__name__}, not an object")
        return found
