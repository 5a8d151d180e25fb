"""Algorithms that need more than the plain loop: steps, a critic, new groups, the first policy; and none with a signal."""

import json

import pytest

from storage import iterations, registry, tables
from tests.integration.conftest import Cli

pytestmark = pytest.mark.orchestration


@pytest.fixture(scope="module")
def cli(prefect_url, tmp_path_factory):
    return Cli(tmp_path_factory.mktemp("algorithms"), prefect_url)


def run(cli, recipe, lineage, *settings, iterations=1):
    pairs = [argument for setting in settings for argument in ("--set", setting)]
    return cli("run", str(recipe), "--lineage", lineage, "--iterations", str(iterations), *pairs)


def read(cli, lineage, *parts):
    return tables.read(tables.ref_at(cli.store.joinpath(lineage, "iteration-0001", *parts)))


def test_process_supervision_gives_every_token_the_steps_that_follow(cli, recipe):
    verifiers = 'scoring.verifiers=[{kind="exact"},{kind="arithmetic_steps"}]'
    done = run(cli, recipe, "process", "update.algorithm=grpo_process", verifiers, "scoring.process=steps")
    assert done.returncode == 0, done.stderr
    rewards = read(cli, "process", "step-001", "rewards")
    assert all(len(row["step_rewards"]) == len(row["step_ends"]) > 0 for row in rewards)
    lengths = {
        (row["group_id"], row["sample_index"]): len(row["completion_token_ids"])
        for row in read(cli, "process", "step-001", "completions")
    }
    assert all(row["step_ends"][-1] == lengths[row["group_id"], row["sample_index"]] - 1 for row in rewards)
    samples = read(cli, "process", "step-001", "samples")
    assert all(row["advantage"] is None for row in samples)
    assert all(len(row["token_advantages"]) == lengths[row["group_id"], row["sample_index"]] for row in samples)
    assert any(value for row in samples for value in row["token_advantages"])


def test_ppo_keeps_a_critic_with_versions_of_its_own(cli, recipe):
    critic = "update.critic={optimiser={learning_rate=1e-3}}"
    done = run(cli, recipe, "ppo", "update.algorithm=ppo", critic, iterations=2)
    assert done.returncode == 0, done.stderr
    found = iterations.records(cli.store, "ppo")
    assert len({record.critic.digest for record in found}) == 3
    versions = registry.versions(cli.store, "ppo", "critic")
    assert [each.version for each in versions] == [1, 2, 3]
    assert versions[2].tags["grpo.parent"] == "models:/ppo-critic/2"
    assert set(versions[2].aliases) == {"champion", "current"}
    samples = read(cli, "ppo", "step-001", "samples")
    for row in samples:
        assert len(row["values"]) == len(row["returns"]) == len(row["completion_token_ids"])
        assert row["reference_logprobs"] is not None
    kept = sorted(path.parts[-4:-1] for path in cli.store.glob("ppo/iteration-*/step-*/critic/model.safetensors"))
    assert [each[:2] for each in kept] == [("iteration-0001", "step-002"), ("iteration-0002", "step-002")]
    assert "ppo-critic" in cli("lineage", "ppo").stdout


def test_dynamic_sampling_replaces_groups_until_the_rounds_are_used_up(cli, recipe):
    script = "rollout.engine.script=['<answer>{answer}</answer>','<answer>{answer}</answer>','<answer>99</answer>']"
    settings = ("update.algorithm=dapo", "update.kl=none", "update.group_filter.max_rounds=2", script)
    done = run(cli, recipe, "dapo", *settings)
    assert done.returncode == 0, done.stderr
    taken, with_signal = [], 0
    for section in ("step-001", "step-001-round-01", "step-001-round-02"):
        if not (cli.store / "dapo" / "iteration-0001" / section).is_dir():
            break
        taken += [row["prompt_id"] for row in read(cli, "dapo", section, "selection")]
        samples = read(cli, "dapo", section, "samples")
        for group in {row["group_id"] for row in samples}:
            members = [row for row in samples if row["group_id"] == group]
            assert len({row["is_masked"] for row in members}) == 1
            with_signal += not members[0]["is_masked"]
    assert len(set(taken)) == len(taken) > 4
    assert 0 < with_signal <= 4


def test_rejection_sampling_samples_from_the_first_policy_and_online_from_the_current_one(cli, recipe):
    for algorithm in ("rft", "online_rft"):
        done = run(cli, recipe, algorithm, f"update.algorithm={algorithm}", "update.kl=none")
        assert done.returncode == 0, done.stderr
    first = iterations.records(cli.store, "rft")[0].policy.digest
    sampled = {
        algorithm: {row["policy_digest"] for row in read(cli, algorithm, "step-002", "completions")}
        for algorithm in ("rft", "online_rft")
    }
    assert sampled["rft"] == {first}
    assert first not in sampled["online_rft"]
    assert {row["advantage"] for row in read(cli, "rft", "step-001", "samples")} == {0.0, 1.0}


def test_iterations_without_signal_are_recorded_change_no_weight_and_end_the_run(cli, recipe):
    settings = ("rollout.engine.script=['<answer>99</answer>']", "scoring.reward_model_weight=0.0")
    done = run(cli, recipe, "silent", *settings, "max_no_signal_iterations=2", iterations=4)
    assert done.returncode == 1
    assert "the last 2 iterations of silent had no group whose completions differ" in done.stderr
    found = iterations.records(cli.store, "silent")
    assert [record.outcome for record in found] == ["updated", "no_signal", "no_signal"]
    assert found[2].metrics["update/num_steps_without_signal"] == 2
    weights = {(cli.store / record.policy.uri / "model.safetensors").read_bytes() for record in found}
    assert len(weights) == 1
    summary = json.loads((cli.store / "silent" / "summary.json").read_text())
    assert [(row["iteration"], row["outcome"]) for row in summary["iterations"]] == [(1, "no_signal"), (2, "no_signal")]
    assert "2 (no signal)" in cli("lineage", "silent").stdout
