"""A night of the deployments: schedule, UI, automation and command line start runs, and what goes wrong is gone on from."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from storage import iterations, lineages, lock
from storage.errors import LineageBusy
from storage.refs import Place
from tests.integration.deployed_store import LINEAGE, ROOT, Deployed, children, is_alive, wait_for

pytestmark = [
    pytest.mark.orchestration,
    pytest.mark.skipif(
        os.environ.get("IGRPO_DEPLOYMENT_TESTS") != "1", reason="some minutes; IGRPO_DEPLOYMENT_TESTS=1 runs it"
    ),
]

ITERATE, BOOTSTRAP, EVALUATE, RETRAIN, COLLECT = (
    "iterate-lineage/iterate",
    "bootstrap-lineage/bootstrap",
    "evaluate-policy/evaluate",
    "retrain-reward-model/retrain-reward",
    "collect-garbage/garbage-collect",
)
HOLDER = """
import sys
from pathlib import Path

from storage import lock
with lock.hold(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory, recipe):
    """Everything up, and a lineage with its bootstrap and one iteration."""
    up = Deployed(tmp_path_factory.mktemp("deployed"))
    try:
        up.wait_until_up()
        done = up.cli("run", str(recipe), "--iterations", "1")
        assert done.returncode == 0, done.stderr
        yield up
    finally:
        up.stop()


def last_iteration(deployed):
    return iterations.records(deployed.store, LINEAGE)[-1].iteration


def is_held(deployed):
    try:
        lock.probe(deployed.store, LINEAGE)
    except LineageBusy:
        return True
    return False


def asked(**request):
    return {"lineage": LINEAGE, **request}


def begun(deployed, started):
    """Wait until the run has done a step of its own; gives its process."""
    flow_run = started.json()["id"]
    wait_for(lambda: deployed.run_of(flow_run)["state"]["type"] == "RUNNING", 180)
    wait_for(lambda: is_held(deployed), 180)
    before = last_iteration(deployed)
    wait_for(lambda: last_iteration(deployed) > before, 240)
    return flow_run, lock.read_holder(deployed.store / LINEAGE)["pid"]


def test_a_second_call_finds_everything_and_changes_nothing(deployed):
    names = [ITERATE, BOOTSTRAP, EVALUATE, RETRAIN, COLLECT]
    before = [deployed.deployment(name)["updated"] for name in names]
    done = deployed.cli("deploy")
    assert done.returncode == 0, done.stderr
    assert "everything is there; nothing was changed" in done.stdout
    assert "prefect deployment run iterate-lineage/iterate" in done.stdout
    assert [deployed.deployment(name)["updated"] for name in names] == before
    assert len(deployed.post("/automations/filter", {}).json()) == 2


def test_bad_parameters_are_refused_before_a_run_exists(deployed):
    before = len(deployed.runs())
    for bad in ({"lineage": "../x"}, asked(num_iterations=0), asked(when_busy="kill"), asked(iterations=3), {}):
        answer = deployed.start(ITERATE, bad)
        assert answer.status_code in (409, 422), (bad, answer.text)
    assert len(deployed.runs()) == before


def test_the_command_line_starts_a_lineage_through_the_worker_and_a_second_start_is_skipped(deployed):
    overrides = [
        "policy.hidden_size=16", "policy.intermediate_size=16", "policy.num_layers=1", "policy.num_heads=1",
        "policy.warm_start.num_updates=2", "prompts.num_heldout=8", "reward_model.num_initial_prompts=8",
        'rollout.engine={kind="scripted", script=["<answer>1</answer>", "2"]}',
    ]  # fmt: skip
    request = json.dumps({"lineage": "fresh", "recipe": "quickstart", "overrides": overrides})
    for name in ("Completed", "Skipped"):
        done = deployed.prefect("deployment", "run", BOOTSTRAP, "--param", f"request={request}", "--watch")
        (newest, *_) = deployed.runs(name={"any_": ["fresh"]})
        assert newest["state"]["name"] == name, (newest["state"], done.stdout, done.stderr)
    assert newest["state"]["message"] == "fresh has its bootstrap, and stands at iteration 0"


def test_a_schedule_that_is_turned_on_makes_a_run_that_does_an_iteration(deployed):
    """Prefect's real scheduler: with the wrong SQLAlchemy it made none, and said so in its log only."""
    before, deployment = last_iteration(deployed), deployed.deployment(ITERATE)
    shipped = {each["slug"]: each["active"] for each in deployment["schedules"]}
    assert shipped == {"nightly": False, "every-four-hours": False}
    soon = datetime.now(UTC) + timedelta(seconds=6)
    schedule = {"schedule": {"interval": 86400, "anchor_date": soon.isoformat()}, "active": True, "slug": "soon"}
    added = deployed.post(
        f"/deployments/{deployment['id']}/schedules", [{**schedule, "parameters": {"request": asked()}}]
    )
    assert added.status_code == 201, added.text
    try:
        of_schedule = {"deployment_id": {"any_": [deployment["id"]]}, "tags": {"all_": ["auto-scheduled"]}}
        wait_for(lambda: deployed.runs(**of_schedule), 90)
        first = min(deployed.runs(**of_schedule), key=lambda each: each["expected_start_time"])
        assert deployed.end_of(first["id"])[:2] == ("COMPLETED", "Completed")
        assert last_iteration(deployed) == before + 1
    finally:
        deployed.http.delete(f"/deployments/{deployment['id']}/schedules/{added.json()[0]['id']}")


def test_a_late_scheduled_run_with_nothing_to_do_is_skipped(deployed):
    before = last_iteration(deployed)
    started = deployed.start(ITERATE, asked(), tags=["auto-scheduled"], late_by=timedelta(days=2))
    kind, name, message = deployed.end_of(started.json()["id"])
    assert (kind, name) == ("COMPLETED", "Skipped")
    assert message.startswith(f"iteration {before} of small was finished at ")
    assert last_iteration(deployed) == before


def test_who_meets_a_held_lineage_skips_or_waits_as_it_was_asked_to(deployed):
    before = last_iteration(deployed)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(deployed.store), LINEAGE],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == "held\n"
        kind, name, message = deployed.end_of(deployed.start(ITERATE, asked(when_busy="skip")).json()["id"])
        assert (kind, name) == ("COMPLETED", "Skipped")
        assert f"process {holder.pid} on" in message
        waiting = deployed.start(ITERATE, asked(when_busy="wait", max_wait_minutes=5)).json()["id"]
        wait_for(lambda: deployed.run_of(waiting)["state"]["type"] == "RUNNING", 180)
        assert last_iteration(deployed) == before
    finally:
        holder.communicate("")
    assert deployed.end_of(waiting)[0] == "COMPLETED"
    assert last_iteration(deployed) == before + 1


def test_a_cancelled_run_ends_within_seconds_and_leaves_nothing_running(deployed):
    flow_run, pid = begun(deployed, deployed.start(ITERATE, asked(num_iterations=50)))
    family = [pid, *(child for child, _ in children(pid))]
    began = datetime.now(UTC)
    deployed.post(f"/flow_runs/{flow_run}/set_state", {"state": {"type": "CANCELLING"}})
    assert deployed.end_of(flow_run, 40)[0] == "CANCELLED"
    wait_for(lambda: not any(is_alive(each) for each in family), 15)
    assert (datetime.now(UTC) - began).total_seconds() < 40
    assert not is_held(deployed)


def test_a_run_whose_process_is_killed_is_crashed_and_the_next_one_goes_on_with_its_iterations(deployed):
    place = Place(root=str(deployed.store), lineage=LINEAGE, token=0)
    (place.lineage_folder / lineages.REQUEST_FILE).unlink(missing_ok=True)  # of the run that was cancelled
    before = last_iteration(deployed)
    flow_run, pid = begun(deployed, deployed.start(ITERATE, asked(num_iterations=3)))
    os.kill(pid, signal.SIGKILL)
    assert deployed.end_of(flow_run, 180)[0] == "CRASHED"
    late = timedelta(days=1)
    resumed = deployed.start(ITERATE, asked(num_iterations=3), tags=["auto-scheduled"], late_by=late).json()["id"]
    assert deployed.end_of(resumed)[:2] == ("COMPLETED", "Completed")
    assert last_iteration(deployed) == before + 3


def test_a_restart_of_the_prefect_server_does_not_hurt_a_run(deployed):
    before = last_iteration(deployed)
    flow_run, pid = begun(deployed, deployed.start(ITERATE, asked(num_iterations=4)))
    server = [child for child, command in children(deployed.process.pid) if "prefect.server.api" in command]
    server = server or [child for child, command in children(deployed.process.pid) if " server start" in command]
    for each in server:
        os.kill(each, signal.SIGKILL)
    wait_for(lambda: "the Prefect server ended with status" in deployed.out.read_text(), 90)
    wait_for(lambda: last_iteration(deployed) == before + 4, 300)

    def is_completed():
        try:
            return deployed.run_of(flow_run)["state"]["type"] == "COMPLETED"
        except httpx.TransportError:  # the server is starting
            return False

    wait_for(is_completed, 300)
    wait_for(lambda: not is_alive(pid), 30)
    assert server, "no server was found to be killed"
    assert last_iteration(deployed) == before + 4


def test_a_retrained_reward_model_is_announced_and_evaluated_by_the_automation(deployed):
    evaluations = {"deployment_id": {"any_": [deployed.deployment(EVALUATE)["id"]]}}
    known = {each["id"] for each in deployed.runs(**evaluations)}
    started = deployed.start(RETRAIN, asked(why="a second look")).json()["id"]
    kind, _, message = deployed.end_of(started)
    assert kind == "COMPLETED", message
    found = wait_for(lambda: [each for each in deployed.runs(**evaluations) if each["id"] not in known], 180)
    request = found[0]["parameters"]["request"]
    newest = iterations.records(deployed.store, LINEAGE)[-1]
    assert request["lineage"] == LINEAGE
    assert request["policy_version"] == int(newest.policy.version)
    assert message.startswith(f"reward model v{request['reward_version']} is in use")
    kind, _, message = deployed.end_of(found[0]["id"])
    assert kind == "COMPLETED", message
    assert message.startswith(
        f"policy v{newest.policy.version} with reward model v{request['reward_version']}: accuracy "
    )


def test_garbage_is_shown_first_and_collected_when_asked_to(deployed):
    kind, _, planned = deployed.end_of(deployed.start(COLLECT, asked(keep_last=1)).json()["id"])
    assert kind == "COMPLETED", planned
    num, num_bytes = planned.removeprefix("small: ").split(" would go, ")
    assert int(num) > 0
    kind, _, done = deployed.end_of(deployed.start(COLLECT, asked(keep_last=1, action="remove")).json()["id"])
    assert kind == "COMPLETED", done
    assert done.startswith(f"small: {num} removed, "), num_bytes


def test_the_page_of_a_run_has_a_progress_bar_a_table_and_a_summary(deployed):
    kinds = {}
    for each in deployed.post("/artifacts/filter", {"limit": 200, "sort": "CREATED_DESC"}).json():
        kinds.setdefault(each["key"], each)
    assert kinds["small-progress"]["type"] == "progress"
    assert kinds["small-progress"]["data"] == 100.0
    assert "held-out accuracy" in kinds["small-iteration"]["data"]
    summary = kinds["small-summary"]["data"]
    newest = iterations.records(deployed.store, LINEAGE)[-1]
    assert f"- **policy** v{newest.policy.version}" in summary
    assert "/#/models/small-policy/versions/" in summary


@pytest.mark.skipif(os.environ.get("IGRPO_SLOW_TESTS") != "1", reason="takes seven minutes; IGRPO_SLOW_TESTS=1 runs it")
def test_a_run_whose_worker_is_gone_is_called_crashed_for_want_of_heartbeats(deployed):
    flow_run, pid = begun(deployed, deployed.start(ITERATE, asked(num_iterations=50)))
    workers = [child for child, command in children(deployed.process.pid) if " worker start" in command]
    for each in workers:
        os.kill(each, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), 10)
    kind, _, message = deployed.end_of(flow_run, 480)
    assert (kind, message) == ("CRASHED", "no heartbeat for 300 s: the process or its machine is gone")
    assert deployed.out.read_text().count("the worker ended with status") == 1
