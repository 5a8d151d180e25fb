"""Settings of the libraries below us, made before they are imported: no telemetry, quiet logs, one home."""

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULTS: Mapping[str, str] = {
    # Nothing is looked up or sent outside this machine.
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # We start the server that a run owns ourselves; Prefect's own embedded one outlives a killed run.
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    # A stage that fails is told in one line by the command line; Prefect would print its traceback once per level.
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "CRITICAL",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",  # our own progress bars say what runs
    # With spinning threads a busy neighbour (a server is one) slows small products a hundredfold.
    "OMP_WAIT_POLICY": "PASSIVE",
}


def prepare_environment(root: Path) -> None:
    """Fill in what the user has not set; Prefect's home becomes ROOT/prefect."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(root / "prefect"))
    if password := os.environ.get("IGRPO_UI_PASSWORD"):  # the servers of `igrpo ui --host` ask for it
        os.environ.setdefault("PREFECT_API_AUTH_STRING", password)


def open_store() -> Path:
    """The store's root (IGRPO_HOME, or ``runs`` here), made when it is missing, with the environment prepared for it."""
    from storage.home import store_root
    from storage.lock import refresh

    root = store_root(os.environ, Path.cwd())
    prepare_environment(root)
    refresh(root)
    return root
