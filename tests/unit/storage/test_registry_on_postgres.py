"""MLflow on a real PostgreSQL server: what storage records stands there once, with a password that goes nowhere."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg2
import pytest

from flows.servers import free_port, start_guarded, stop
from storage import checkpoints, lock, registry, tracking
from storage.manifest import Provenance
from storage.refs import ModelRef


def newest_initdb():
    """The newest installed PostgreSQL of Debian's packages, None without one."""
    return max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None, key=lambda p: int(p.parents[1].name))


@pytest.fixture
def postgres():
    """(port, password) of a server with an empty database mlflow, on 127.0.0.1, as an unprivileged user."""
    initdb = newest_initdb()
    if initdb is None:
        if os.environ.get("IGRPO_REQUIRE_POSTGRES") == "1":
            pytest.fail("/usr/lib/postgresql is empty: apt-get install postgresql")
        pytest.skip("no /usr/lib/postgresql/*/bin/initdb; apt-get install postgresql")
    home = Path(tempfile.mkdtemp(prefix="igrpo-postgres-", dir="/tmp"))
    as_user = []
    if os.geteuid() == 0:  # the server refuses to run as root
        user = pwd.getpwnam("nobody")
        os.chown(home, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    password, port, data = secrets.token_hex(12), free_port(), home / "data"
    (home / "password").write_text(password)
    (home / "password").chmod(0o644)
    init = [str(initdb), "-D", str(data), "-U", "igrpo", "--auth=scram-sha-256", f"--pwfile={home / 'password'}"]
    subprocess.run([*as_user, *init], check=True, capture_output=True, cwd=home)
    (home / "password").unlink()
    command = [str(initdb.with_name("postgres")), "-D", str(data), "-p", str(port)]
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={home}"]
    log = home / "server.log"
    process = start_guarded([*as_user, *command, *settings], log, {})
    try:
        connection = wait_until_it_answers(process, port, password, log)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE mlflow")
        connection.close()
        yield port, password
    finally:
        stop(process)
        shutil.rmtree(home)


def connect(port, password, database):
    return psycopg2.connect(host="127.0.0.1", port=port, user="igrpo", password=password, dbname=database)


def wait_until_it_answers(process, port, password, log):
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            return connect(port, password, "postgres")
        except psycopg2.OperationalError:
            time.sleep(0.1)


def rows(postgres, query):
    connection = connect(*postgres, "mlflow")
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()
    finally:
        connection.close()


def write_policy(folder):
    (folder / "model.safetensors").write_bytes(b"w")


def record(place) -> ModelRef:
    run = tracking.ensure_run(place, name="iteration", tags={"grpo.stage": "iteration"}, params={"lr": "0.1"})
    provenance = Provenance(stage="policy", inputs={})
    ref = checkpoints.find(place, "policy", provenance) or checkpoints.publish(
        place, "policy", write_policy, provenance
    )
    tracking.log_metrics(place, run, {"accuracy": 0.5}, step=0, created_at="2026-01-01T00:00:00.000000+00:00")
    version = registry.register(place, ref, run_id=run, tags={}, description="first policy")
    registry.set_alias(place, version, "champion")
    tracking.finish_run(place, run)
    return version


def test_what_is_recorded_twice_stands_once_in_postgres(postgres, tmp_path, monkeypatch):
    port, password = postgres
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgresql://igrpo:{password}@127.0.0.1:{port}/mlflow")
    with lock.hold(tmp_path, "line") as place:
        assert record(place).version == record(place).version == "1"
    assert not (tmp_path / "mlflow.db").exists()
    assert rows(postgres, "SELECT name, version, description FROM model_versions") == [
        ("line-policy", 1, "first policy")
    ]
    assert rows(postgres, "SELECT alias, version FROM registered_model_aliases") == [("champion", 1)]
    assert rows(postgres, "SELECT status FROM runs") == [("FINISHED",)]
    assert rows(postgres, "SELECT key, value FROM latest_metrics") == [("accuracy", 0.5)]
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    assert kept == []
