"""Prefect and MLflow on a real PostgreSQL server: a run leaves its rows in both, and its bytes are the same."""

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

from flows.environment import DEFAULTS
from flows.servers import free_port, prefect_command, start_guarded, stop, wait_until_healthy
from tests.integration.conftest import Cli
from tests.integration.test_resume import digests

pytestmark = pytest.mark.orchestration


def binaries():
    """The newest installed PostgreSQL of Debian's packages."""
    return max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=None, key=lambda p: int(p.parents[1].name))


@pytest.fixture(scope="module")
def postgres():
    """(port, password) of a server with the databases prefect and mlflow, on 127.0.0.1, as an unprivileged user."""
    initdb = binaries()
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
            for name in ("prefect", "mlflow"):
                cursor.execute(f"CREATE DATABASE {name}")
        connection.close()
        yield port, password
    finally:
        stop(process)
        shutil.rmtree(home)


def connect(port, password, database):
    return psycopg2.connect(host="127.0.0.1", port=port, user="igrpo", password=password, dbname=database)


def wait_until_it_answers(process, port, password, log):
    deadline = time.monotonic() + 30
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            return connect(port, password, "postgres")
        except psycopg2.OperationalError:
            time.sleep(0.1)


def rows(postgres, database, query):
    connection = connect(*postgres, database)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def prefect_on_postgres(postgres, tmp_path_factory):
    home = tmp_path_factory.mktemp("prefect-on-postgres")
    port, log = free_port(), home / "server.log"
    url = f"http://127.0.0.1:{port}/api"
    settings = {
        **DEFAULTS,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": url,
        "PREFECT_API_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://igrpo:{postgres[1]}@127.0.0.1:{postgres[0]}/prefect",
    }
    process = start_guarded(prefect_command(port), log, settings)
    try:
        wait_until_healthy(process, f"{url}/health", log, name="Prefect")
        yield url
        assert list(home.glob("*.db")) == []
    finally:
        stop(process)


def test_a_run_on_postgres_is_recorded_there_and_makes_the_same_bytes(
    postgres, prefect_on_postgres, recipe, uninterrupted, tmp_path
):
    port, password = postgres
    cli = Cli(tmp_path / "store", prefect_on_postgres)
    cli.env["MLFLOW_TRACKING_URI"] = f"postgresql://igrpo:{password}@127.0.0.1:{port}/mlflow"
    done = cli("run", str(recipe))
    assert done.returncode == 0, done.stderr + done.stdout

    assert digests(cli.store) == digests(uninterrupted.store)
    assert not (cli.store / "mlflow.db").exists()
    assert rows(postgres, "mlflow", "SELECT name, version FROM model_versions ORDER BY 1, 2") == [
        (f"small-{role}", version) for role in ("policy", "reward") for version in (1, 2, 3)
    ]
    assert rows(postgres, "mlflow", "SELECT status, count(*) FROM runs GROUP BY 1") == [("FINISHED", 3)]
    assert rows(postgres, "mlflow", "SELECT max(length(description)) <= 5000 FROM model_versions") == [(True,)]
    flows = "SELECT f.name, r.state_type::text, count(*) FROM flow_run r JOIN flow f ON f.id = r.flow_id GROUP BY 1, 2"
    recorded = {name: (state, num) for name, state, num in rows(postgres, "prefect", flows)}
    assert recorded["iterate"] == ("COMPLETED", 1)
    assert recorded["iteration"] == ("COMPLETED", 2)

    shown = cli("lineage", "small")
    assert "v3 iteration 2" in shown.stdout, shown.stderr
    assert password not in done.stdout + done.stderr + shown.stdout + shown.stderr
    assert [p for p in cli.store.rglob("*") if p.is_file() and password.encode() in p.read_bytes()] == []
