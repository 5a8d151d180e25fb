"""The store's commands over a real lineage: whole, branched and gone on with, collected, exported, moved."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from storage import iterations, registry
from storage.checkpoints import open_folder
from tests.integration.conftest import Cli

pytestmark = pytest.mark.orchestration

GOLDEN = Path(__file__).parents[1] / "golden" / "stores"


@pytest.fixture(scope="module")
def cli(uninterrupted, prefect_url, tmp_path_factory):
    """A copy of the finished store at another place, so that every command here also works on a store that was moved."""
    store = tmp_path_factory.mktemp("moved") / "store"
    subprocess.run(["cp", "-a", str(uninterrupted.store), str(store)], check=True)
    return Cli(store, prefect_url)


def done(result):
    assert result.returncode == 0, result.stderr + result.stdout
    return result.stdout


def test_a_whole_store_is_whole_and_one_bit_makes_it_fail(cli):
    assert ": 0 faults" in done(cli("verify-store"))
    path = cli.store / "small/iteration-0001/step-002/policy/model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    broken = cli("verify-store", "small")
    path.write_bytes(whole)
    assert broken.returncode == 1
    assert f"{path} has sha256" in broken.stdout
    assert "1 lineages" in broken.stdout
    assert ": 1 faults" in broken.stdout
    assert cli("verify-store", "other").returncode == 2
    assert cli("verify-store", "../store/small").returncode == 1


def test_a_branch_goes_on_from_its_version_and_may_have_other_settings(cli, recipe):
    said = done(cli("branch", "small@2", "gentle", "--set", "update.kl.beta=0.5"))
    assert "lineage gentle begins with policy v2 of small as its policy v1" in said
    refused = cli("run", str(recipe), "--lineage", "gentle", "--iterations", "1")
    assert refused.returncode == 2
    assert "update.kl.beta: recorded 0.5, asked 0.01" in refused.stderr
    done(cli("run", str(recipe), "--lineage", "gentle", "--iterations", "1", "--set", "update.kl.beta=0.5"))
    first, second = iterations.records(cli.store, "gentle")
    assert (first.iteration, second.iteration) == (1, 2)
    origin = iterations.records(cli.store, "small")[1]
    assert (first.policy.digest, second.reference.digest) == (origin.policy.digest, origin.policy.digest)
    assert second.policy.digest != first.policy.digest
    assert second.metrics["replay/num_replayed"] > 0
    (page,) = [each for each in registry.versions(cli.store, "gentle", "policy") if each.version == 1]
    assert page.tags["grpo.parent"] == "models:/small-policy/2"
    assert "grpo.parent" in registry.versions(cli.store, "gentle", "policy")[1].tags
    assert ": 0 faults" in done(cli("verify-store"))
    assert "models:/small-policy/2" in done(cli("lineage", "gentle"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("small", "new"), "is not LINEAGE@VERSION"),
        (("small@9", "new"), "has no policy v9"),
        (("small@1", "../new"), "is not usable"),
        (("small@1", "new", "--set", "prompts.num_heldout=3"), "a branch begins with what this setting made"),
        (("small@1", "new", "--set", "update.nothing=3"), "wrong settings"),
        (("none@1", "new"), "no lineage 'none'"),
    ],
)
def test_a_branch_that_can_not_be_is_refused_in_one_line(cli, arguments, message):
    result = cli("branch", *arguments)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (cli.store / "new" / "lineage.json").exists()


def test_an_export_is_loaded_by_transformers_and_gives_the_same_logits(cli, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = tmp_path / "exported"
    said = done(cli("export", "small", "--to", str(target), "--version", "2"))
    assert "policy v2 of small (iteration 1)" in said
    record = iterations.records(cli.store, "small")[1]
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        exported = AutoModelForCausalLM.from_pretrained(target)(ids).logits
        ours = AutoModelForCausalLM.from_pretrained(open_folder(record.policy))(ids).logits
    assert torch.equal(exported, ours)
    assert len(AutoTokenizer.from_pretrained(target)) > 3
    assert not (target / "trainer").exists()
    labels = pq.read_table(target / "data" / "labels.parquet")
    assert labels.num_rows == record.tables["labels"].num_rows
    assert (target / "data" / "step-001-completions.parquet").is_file()
    card = (target / "README.md").read_text()
    assert f"| accuracy, sampled | {record.metrics['evaluation/accuracy']:.3f} |" in card
    assert "| parent | models:/small-policy/1 |" in card
    assert json.loads((target / "recipe.json").read_text())["name"] == "small"
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=target, check=False).returncode == 0
    again = cli("export", "small", "--to", str(target))
    assert again.returncode == 1
    assert "is not an empty folder" in again.stderr
    assert list(tmp_path.iterdir()) == [target]


def test_a_damaged_version_is_not_exported(cli, tmp_path):
    path = cli.store / "small/iteration-0000/policy/model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    result = cli("export", "small", "--to", str(tmp_path / "x"), "--version", "1")
    path.write_bytes(whole)
    assert result.returncode == 1
    assert "has sha256" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_collection_says_first_and_removes_then_and_the_lineage_goes_on(cli, recipe):
    store = cli.store.parent / "collected"
    subprocess.run(["cp", "-a", str(cli.store), str(store)], check=True)
    here = Cli(store, cli.env["PREFECT_API_URL"])
    said = done(here("gc", "--keep-last", "1", "--lineage", "small"))
    assert "nothing was removed, --apply does it" in said
    assert "remove small/iteration-0000/reward" in said
    assert "the champion" in said
    assert (store / "small/iteration-0000/reward/model.safetensors").is_file()
    removed = done(here("gc", "--keep-last", "1", "--lineage", "small", "--apply"))
    assert "bytes freed" in removed
    assert not (store / "small/iteration-0000/reward/model.safetensors").exists()
    assert json.loads((store / "small/iteration-0000/reward/manifest.json").read_text())["pruned"] is True
    whole = done(here("verify-store"))
    assert "removed on purpose" in whole
    assert ": 0 faults" in whole
    done(here("lineage", "small"))
    num_before = len(iterations.records(store, "small"))
    done(here("run", str(recipe), "--iterations", "1"))
    assert len(iterations.records(store, "small")) == num_before + 1
    refused = here("promote", "small", "1", "--why", "x")
    is_kept = (store / "small/iteration-0000/policy/model.safetensors").exists()
    assert refused.returncode == (0 if is_kept else 1)
    shutil.rmtree(store)


@pytest.mark.parametrize("name", ["schema-1", "schema-2"])
def test_a_lineage_of_an_older_schema_goes_on(name, prefect_url, recipe, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(GOLDEN / name, store)
    with gzip.open(store / "mlflow.db.gz") as packed:
        (store / "mlflow.db").write_bytes(packed.read())
    cli = Cli(store, prefect_url)
    old = iterations.records(store, "small")
    settings = ("--set", "reward_model.num_initial_prompts=8", "--iterations", "1")
    said = cli("run", str(recipe), *settings)
    assert "it did not have are recorded as this run has them" in said.stderr
    done(said)
    *before, new = iterations.records(store, "small")
    assert (before, new.iteration, new.reference.digest) == (old, 2, old[-1].policy.digest)
    assert new.metrics["replay/num_replayed"] > 0
    assert new.tables["anchor"].num_rows == 0
    assert new.policy.version == "3"
    assert ": 0 faults" in done(cli("verify-store"))
    assert "models:/small-policy/2" in done(cli("lineage", "small"))
    done(cli("run", str(recipe), *settings))
    assert len(iterations.records(store, "small")) == 4
