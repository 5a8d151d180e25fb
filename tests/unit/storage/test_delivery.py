"""MLflow dead, dying or hanging: bounded time, one warning, nothing lost, and afterwards everything exactly once."""

import secrets
import socket
import threading
import time
from functools import cache

import pytest

from storage import checkpoints, delivery, journal, lock, mlflow_client, tables, tracking
from storage.manifest import Provenance
from storage.mlflow_client import of


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    mlflow_client.client(root)
    return root


@pytest.fixture
def place(store):
    with lock.hold(store, f"loop-{secrets.token_hex(4)}") as place:
        yield place
    delivery._outages.clear()


@pytest.fixture
def silent():
    """A server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def accept():
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


def model(place):
    def write(folder):
        (folder / "model.safetensors").write_bytes(b"w")

    ref = checkpoints.publish(place, "policy", write, Provenance(stage="policy", inputs={}))
    return ref.model_copy(update={"version": str(place.iteration + 1)})


@cache
def made(place):
    """A model and a table of the iteration, made once."""
    return model(place), tables.publish(place, "evaluation", [], Provenance(stage="evaluation", inputs={}))


def write_iteration(place):
    """What an iteration puts into the journal, one entry of most kinds; gives the number of entries."""
    ref, rows = made(place)
    stamp = "2026-01-01T00:00:00.000000Z"
    journal.append(place, "run", {"name": "0000 x", "tags": {"a": "b"}, "params": {"lr": "1"}})
    journal.append(place, "metrics", {"metrics": {"loss": 2.0}, "step": 1, "created_at": stamp})
    journal.append(place, "version", {"ref": ref.model_dump(), "tags": {"x": "y"}, "description": "d"})
    journal.append(place, "dataset", {"ref": rows.model_dump(), "context": "evaluation", "profile": {}})
    journal.append(place, "consumed", {"refs": [ref.model_dump()]})
    journal.append(place, "alias", {"ref": ref.model_dump(), "alias": "current", "cause": "iteration 0"})
    journal.append(place, "version_tags", {"ref": ref.model_dump(), "tags": {"grpo.promote": "by kim"}})
    journal.append(place, "tags", {"tags": {"grpo.promotion": "better"}})
    journal.append(place, "finish", {"status": "FINISHED"})
    return 9


def require_exactly_once(place, num_iterations=1):
    client, name = of(place), f"{place.lineage}-policy"
    experiment = client.get_experiment_by_name(place.lineage).experiment_id
    runs = [client.get_run(run.info.run_id) for run in client.search_runs([experiment])]
    assert len(runs) == num_iterations
    for run in runs:
        assert run.info.status == "FINISHED"
        assert run.data.params == {"lr": "1"}
        assert run.data.tags["grpo.promotion"] == "better"
        assert [each.value for each in client.get_metric_history(run.info.run_id, "loss")] == [2.0]
        assert len(run.inputs.dataset_inputs) == len(run.inputs.model_inputs) == len(run.outputs.model_outputs) == 1
    assert len(client.search_logged_models([experiment])) == num_iterations
    versions = client.search_model_versions(f"name = '{name}'")
    assert sorted(int(each.version) for each in versions) == list(range(1, num_iterations + 1))
    assert {each.tags["grpo.promote"] for each in versions} == {"by kim"}
    assert str(client.get_registered_model(name).aliases["current"]) == str(num_iterations)


def dead_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("fault", ["dead", "silent"])
def test_a_server_that_is_dead_or_hangs_costs_seconds_and_one_warning_and_is_told_later(
    place, fault, request, monkeypatch, caplog
):
    uri = dead_address() if fault == "dead" else request.getfixturevalue("silent")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    number = write_iteration(place)
    began = time.monotonic()
    assert [delivery.deliver(place), delivery.deliver(place), delivery.deliver_now(place)] == [number] * 3
    assert time.monotonic() - began < 2 * delivery.PROBE_SECONDS + 2
    assert caplog.text.count("MLflow was not told of 9 things") == 1
    assert uri in caplog.text
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert delivery.deliver(place) == 0
    assert journal.num_pending(place.lineage_folder.parent, place.lineage) == 0
    require_exactly_once(place)


CALLS = ["create_run", "log_batch", "create_logged_model", "create_model_version", "log_inputs", "set_terminated"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_that_dies_in_a_call_is_told_each_thing_once_in_the_end(place, call, moment, monkeypatch, caplog):
    """After: the server did what was asked and its answer was lost."""
    number = write_iteration(place)
    with monkeypatch.context() as broken:
        real = getattr(of(place), call)

        def die(*args, **kwargs):
            if moment == "after":
                real(*args, **kwargs)
            raise ConnectionError("gone")

        broken.setattr(of(place), call, die)
        left = delivery.deliver(place)
        assert 0 < left <= number
        assert "gone" in caplog.text
    assert delivery.deliver_now(place) == 0
    assert write_iteration(place) == number  # a run that is resumed says everything again
    assert delivery.deliver_now(place) == 0
    require_exactly_once(place)


def test_iterations_that_piled_up_get_the_store_s_numbers_in_order(place, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead_address())
    for iteration in range(3):
        write_iteration(place.at(iteration=iteration))
        delivery.deliver(place)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert delivery.deliver_now(place) == 0
    require_exactly_once(place, 3)


def test_what_can_not_be_delivered_is_set_aside_and_the_rest_goes_on(place, caplog):
    missing = model(place).model_copy(update={"version": "77"})
    journal.append(place, "run", {"name": "x", "tags": {}, "params": {}})
    journal.append(place, "alias", {"ref": missing.model_dump(), "alias": "current", "cause": "x"})
    journal.append(place, "finish", {"status": "FINISHED"})
    assert delivery.deliver(place) == 0
    (reason,) = (place.lineage_folder / journal.FOLDER / journal.REFUSED).glob("*.txt")
    assert "v77" in reason.read_text()
    assert of(place).get_run(tracking.run_of(place)).info.status == "FINISHED"


def test_a_run_that_fails_without_mlflow_is_marked_once_mlflow_is_back(place, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead_address())
    journal.append(place, "run", {"name": "x", "tags": {}, "params": {}})
    delivery.deliver(place)
    delivery.close(place, "FAILED")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert delivery.deliver_now(place) == 0
    assert of(place).get_run(tracking.run_of(place)).info.status == "FAILED"


def test_every_kind_of_entry_has_its_delivery():
    from typing import get_args

    assert set(delivery.DELIVERIES) == set(get_args(journal.Kind))


def test_a_rollback_without_mlflow_leaves_a_retired_run_and_a_new_one(place, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead_address())
    for kind, content in (
        ("run", {"name": "x", "tags": {}, "params": {}}),
        ("retire", {"why": "gone back to by kim"}),
        ("run", {"name": "x", "tags": {}, "params": {}}),
        ("tags", {"tags": {"a": "b"}}),
        ("finish", {"status": "FINISHED"}),
    ):
        journal.append(place, kind, content)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert delivery.deliver_now(place) == 0
    runs = of(place).search_runs([tracking.ensure_experiment(place)])
    assert sorted(run.info.status for run in runs) == ["FINISHED", "KILLED"]
    assert [run.data.tags.get("a") for run in runs if run.info.status == "FINISHED"] == ["b"]
    assert not (place.lineage_folder / journal.FOLDER / journal.REFUSED).exists()


def test_a_delivery_past_its_limit_begins_no_further_entry_and_says_what_waits(place, monkeypatch, caplog):
    number = write_iteration(place)
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(delivery.time, "monotonic", lambda: float(next(clock)))
    left = delivery.deliver_now(place, limit_seconds=25.0)
    monkeypatch.undo()
    assert left == number - 2  # looked at after 10 and 20 s, and stopped at 30 s
    assert journal.num_pending(place.lineage_folder.parent, place.lineage) == left
    assert "it took more than 25 s" in caplog.text
    assert delivery.deliver_now(place) == 0
    require_exactly_once(place)


@pytest.mark.parametrize(("cost", "pause"), [(0.5, 30.0), (2.0, 40.0), (12.0, 240.0)])
def test_attempts_that_fail_take_at_most_a_twentieth_of_a_run(place, monkeypatch, cost, pause):
    """2 s is the probe of a server that hangs, 12 s one whose first call hangs behind a probe that it answers."""
    write_iteration(place)
    now = [1000.0]

    def hang(_):
        now[0] += cost
        return "it hangs"

    monkeypatch.setattr(delivery, "unreachable", hang)
    monkeypatch.setattr(delivery.time, "monotonic", lambda: now[0])
    delivery.deliver(place)
    ended = now[0]
    for waited in (1.0, pause - 0.1):
        now[0] = ended + waited
        delivery.deliver(place)
        assert now[0] == ended + waited  # not asked
    now[0] = ended + pause + 0.1
    delivery.deliver(place)
    assert now[0] == ended + pause + 0.1 + cost
    assert cost / pause <= delivery.MAX_LOST_SHARE
