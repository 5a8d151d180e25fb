"""A stage that fails: one readable line, a failed MLflow run, and nothing lost."""

import pytest

from storage.mlflow_client import client
from tests.integration.conftest import Cli

pytestmark = pytest.mark.orchestration


def test_a_failing_stage_is_one_line_and_its_run_is_marked_failed(prefect_url, recipe, tmp_path):
    cli = Cli(tmp_path, prefect_url)
    done = cli("run", str(recipe), "--set", "scoring.row_deadline_seconds=1e-9")
    assert done.returncode == 1
    assert ": 4 of 64 rows failed, against scoring.max_failed_share 0.05" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    mlflow = client(tmp_path)
    (run,) = mlflow.search_runs([mlflow.get_experiment_by_name("small").experiment_id])
    assert run.info.status == "FAILED"
    bootstrap = tmp_path / "small" / "iteration-0000"
    assert (bootstrap / "policy" / "manifest.json").is_file()
    assert (bootstrap / "initial" / "completions" / "manifest.json").is_file()
    assert not (bootstrap / "initial" / "rewards").exists()
