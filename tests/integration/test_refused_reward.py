"""A retraining that forgot the anchor set: kept, registered and shown, while the loop goes on with the last good model."""

import json

import pytest

from storage import iterations, registry, tables
from storage.manifest import read_manifest
from tests.integration.conftest import Cli

pytestmark = pytest.mark.orchestration

# Imported by every Python process that finds it first on its path: the first retraining is judged to have forgotten.
FORGETFUL = """
import sys
class Late:
    def find_spec(self, name, path=None, target=None):
        if name == "tasks.report":
            sys.meta_path.remove(self)
            from tasks.reward import retraining
            from tasks.reward.anchor import AnchorDecision
            decisions = iter([AnchorDecision(True, -0.3, -0.4, -0.2)])
            plain = retraining.compare
            retraining.compare = lambda *args, **kwargs: next(decisions, None) or plain(*args, **kwargs)
sys.meta_path.insert(0, Late())
"""


@pytest.fixture(scope="module")
def cli(prefect_url, recipe, tmp_path_factory):
    hook = tmp_path_factory.mktemp("hook")
    (hook / "sitecustomize.py").write_text(FORGETFUL)
    cli = Cli(tmp_path_factory.mktemp("refused"), prefect_url)
    done = cli("run", str(recipe), PYTHONPATH=str(hook))
    assert done.returncode == 0, done.stderr + done.stdout
    return cli


@pytest.fixture(scope="module")
def records(cli):
    return iterations.records(cli.store, "small")


def test_the_loop_goes_on_with_the_last_good_model(cli, records):
    first, refused, after = records
    assert refused.reward == first.reward
    assert refused.refused_reward.digest != first.reward.digest
    assert (after.reward.version, after.refused_reward) == ("3", None)
    folder = cli.store / "small" / "iteration-0002"
    scored = read_manifest(folder / "step-001" / "rewards").provenance.inputs["reward_model"]
    continued = read_manifest(folder / "reward").provenance.inputs["reward_model"]
    assert scored == continued == first.reward.digest


def test_the_refused_model_is_kept_with_its_evidence_and_has_no_alias(cli, records):
    refused = records[1].refused_reward
    assert (cli.store / "small" / "iteration-0001" / "reward" / "model.safetensors").is_file()
    versions = registry.versions(cli.store, "small", "reward")
    assert [version.version for version in versions] == [1, 2, 3]
    assert refused.version == "2"
    assert versions[1].aliases == ()
    assert versions[1].tags["grpo.refused"] == records[1].reward_promotion
    assert records[1].reward_promotion.startswith("refused: accuracy on ")
    assert "-0.300 [-0.400, -0.200]" in records[1].reward_promotion
    assert versions[2].tags["grpo.parent"] == "models:/small-reward/1"
    assert set(versions[2].aliases) == {"champion", "current"}


def test_its_labels_stay_in_the_history(cli, records):
    barred = {row["prompt_key"] for row in tables.read(records[0].tables["anchor"])}
    history = [row for record in records[:2] for row in tables.read(record.tables["labels"])]
    metrics = tables.metrics_of(records[2].tables["reward_training"])
    assert metrics["num_history"] == sum(row["prompt_key"] not in barred for row in history)


def test_the_summary_the_table_and_the_lineage_say_so(cli):
    summary = json.loads((cli.store / "small" / "summary.json").read_text())
    assert [row["refused_reward_version"] for row in summary["iterations"]] == [2, None]
    assert [row["reward_version"] for row in summary["iterations"]] == [1, 3]
    assert summary["iterations"][0]["reward_promotion"].startswith("refused: ")
    shown = cli("lineage", "small").stdout
    assert "v1 (v2 refused)" in shown
    assert "refused: accuracy on" in shown
