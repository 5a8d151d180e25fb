"""Guards and decisions by hand over real runs: stopped, gone on, rolled back, and each with its evidence."""

import json

import pytest

from storage import iterations, registry
from storage.manifest import read_manifest
from storage.mlflow_client import client
from tests.integration.conftest import Cli

pytestmark = pytest.mark.orchestration


def records_of(cli):
    return iterations.records(cli.store, "small")


def aliases_of(cli):
    return {each.version: set(each.aliases) for each in registry.versions(cli.store, "small", "policy")}


@pytest.fixture(scope="module")
def stopped(prefect_url, recipe, tmp_path_factory):
    """A run that a guard of steps stopped in its first iteration."""
    cli = Cli(tmp_path_factory.mktemp("guarded"), prefect_url)
    arguments = ("run", str(recipe), "--set", "guards.grad_norm={max=0.0,action='stop'}")
    return cli, cli(*arguments), cli(*arguments)


def test_a_stop_is_one_line_comes_again_and_loses_nothing(stopped):
    cli, first, again = stopped
    for done in (first, again):
        assert done.returncode == 1
        assert "guard grad_norm (stop):" in done.stderr
        assert "is above guards.grad_norm.max 0" in done.stderr
        assert "igrpo rollback" in done.stderr
        assert "Traceback" not in done.stderr + done.stdout
    folder = cli.store / "small" / "iteration-0001"
    assert read_manifest(folder / "step-001" / "policy") is not None
    assert not (folder / "step-002").exists()
    assert len(records_of(cli)) == 1
    mlflow = client(cli.store)
    runs = mlflow.search_runs([mlflow.get_experiment_by_name("small").experiment_id])
    (failed,) = [run for run in runs if run.data.tags["grpo.iteration"] == "1"]
    assert failed.info.status == "FAILED"
    assert "guard grad_norm" in failed.data.tags["grpo.guards.step-001"]


def test_the_same_lineage_goes_on_once_the_guard_is_changed_and_the_finished_step_is_not_done_again(stopped, recipe):
    cli, _, _ = stopped
    step = cli.store / "small" / "iteration-0001" / "step-001" / "policy"
    before = read_manifest(step)
    rollback = "guards.accuracy_drop={max=-2.0,action='rollback'}"
    done = cli("run", str(recipe), "--iterations", "2", "--set", rollback)
    assert done.returncode == 0, done.stderr
    assert read_manifest(step).created_at == before.created_at
    assert "rolled back: the next iteration starts from policy" in done.stdout
    _, second, third = records_of(cli)
    assert second.rolled_back_to == second.champion
    assert second.guards[0].startswith("guard accuracy_drop (rollback):")
    assert third.reference.digest == second.champion.digest
    assert read_manifest(cli.store / "small/iteration-0002/step-001/policy").provenance.inputs["policy"] == (
        second.champion.digest
    )
    assert "current" in aliases_of(cli)[int(third.champion.version)]


def test_a_rollback_by_hand_holds_for_the_next_iteration_and_is_recorded_with_who_and_why(stopped, recipe):
    cli, _, _ = stopped
    assert cli("rollback", "small", "--to", "9", "--why", "x").returncode == 1
    done = cli("rollback", "small", "--to", "1", "--why", "the second one stutters", "--by", "kim")
    assert done.returncode == 0, done.stderr
    assert "iteration 3 starts from policy v1" in done.stdout
    assert aliases_of(cli)[1] == {"champion", "current"}
    version = client(cli.store).get_model_version("small-policy", "1")
    assert "by kim" in version.tags["grpo.rollback"]
    assert "the second one stutters" in version.tags["grpo.rollback"]
    assert cli("run", str(recipe), "--iterations", "1").returncode == 0
    records = records_of(cli)
    assert records[3].reference.digest == records[0].policy.digest
    assert records[3].metrics["evaluation/accuracy_before"] == records[0].metrics["evaluation/accuracy"]
    shown = cli("lineage", "small").stdout
    assert "after iteration 2: policy v1 gone back to by kim" in shown


def test_a_promotion_by_hand_moves_the_champion_only(stopped):
    cli, _, _ = stopped
    newest = str(records_of(cli)[-1].policy.version)
    done = cli("promote", "small", "2", "--why", "reads better", "--by", "lee")
    assert done.returncode == 0, done.stderr
    assert f"iteration 4 starts from policy v{newest}" in done.stdout
    assert "champion" in aliases_of(cli)[2]
    decided = json.loads((cli.store / "small" / "decisions" / "0002.json").read_text())
    assert (decided["kind"], decided["by"], decided["why"], decided["after_iteration"]) == (
        "promote", "lee", "reads better", 3,
    )  # fmt: skip


def test_without_a_reason_nothing_is_decided(stopped):
    cli, _, _ = stopped
    refused = cli("promote", "small", "1", "--why", " ")
    assert refused.returncode == 1
    assert "say why" in refused.stderr
    assert len(list((cli.store / "small" / "decisions").iterdir())) == 2
