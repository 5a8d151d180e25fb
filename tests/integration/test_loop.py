"""The complete loop, run by the command line and read back as its users would."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage import iterations, lock, registry, reports, summaries, tables
from storage.mlflow_client import client

pytestmark = pytest.mark.orchestration


def read(store, *parts):
    return tables.read(tables.ref_at(store.joinpath("small", *parts)))


@pytest.fixture(scope="module")
def store(uninterrupted):
    return uninterrupted.store


def test_the_summary_tells_each_iteration(store):
    summary = json.loads((store / "small" / "summary.json").read_text())
    assert (summary["lineage"], summary["recipe"]) == ("small", "small")
    assert [row["iteration"] for row in summary["iterations"]] == [1, 2]
    # The scripted engine draws one of four texts by seed, the policy has no say: the same accuracy before and after.
    for row in summary["iterations"]:
        assert row["accuracy_before"] == row["accuracy_after"] == summary["baseline_accuracy"]
        assert 0 < row["reward_mean"] < 1.1
    assert [row["policy_version"] for row in summary["iterations"]] == [2, 3]
    assert [row["champion_version"] for row in summary["iterations"]] == [2, 3]


def test_every_step_has_its_tables_and_they_fit_together(store):
    for iteration in (1, 2):
        for step in (1, 2):
            where = f"iteration-{iteration:04d}", f"step-{step:03d}"
            completions, rewards, samples = (
                read(store, *where, name) for name in ("completions", "rewards", "samples")
            )
            keys = [(row["group_id"], row["sample_index"]) for row in completions]
            assert len(set(keys)) == 16
            assert {(row["group_id"], row["sample_index"]) for row in rewards} == set(keys)
            assert {(row["group_id"], row["sample_index"]) for row in samples} == set(keys)
            assert {row["reward_model_status"] for row in rewards} == {"scored"}
            for row in rewards:
                assert row["reward"] == pytest.approx(row["exact_reward"] + 0.1 * row["reward_model_reward"])
                assert row["is_correct"] == (row["exact_reward"] == 1.0)
            for group in {row["group_id"] for row in samples}:
                assert sum(row["advantage"] for row in samples if row["group_id"] == group) == pytest.approx(
                    0, abs=1e-9
                )


def test_no_seed_is_used_twice_in_training(store):
    seeds = [
        row["seed"]
        for path in (store / "small").glob("iteration-*/step-*/completions")
        for row in tables.read(tables.ref_at(path))
    ]
    assert len(seeds) == len(set(seeds)) == 64


def test_held_out_prompts_are_never_trained_on(store):
    prompts = read(store, "iteration-0000", "prompts")
    heldout = {row["prompt_id"] for row in prompts if row["split"] == "heldout"}
    assert len(heldout) == 8
    for path in (store / "small").glob("iteration-*/step-*/selection"):
        assert heldout.isdisjoint(row["prompt_id"] for row in tables.read(tables.ref_at(path)))
    for path in (store / "small").glob("iteration-*/reward_training"):
        assert heldout.isdisjoint(row["prompt_id"] for row in tables.read(tables.ref_at(path)))


def test_a_tenth_of_the_history_is_replayed_and_marked(store):
    history = []
    anchor = read(store, "iteration-0000", "anchor")
    assert len(anchor) > 0
    barred = {row["prompt_key"] for row in anchor}
    for iteration in range(3):
        where = f"iteration-{iteration:04d}"
        labelled, training = read(store, where, "pairs"), read(store, where, "reward_training")
        fresh = [row for row in labelled if row["prompt_key"] not in barred]
        assert barred.isdisjoint(row["prompt_key"] for row in training)
        replayed = [row for row in training if row["is_replayed"]]
        expected = max(1, int(len(history) * 0.1 + 0.5)) if history else 0
        assert len(replayed) == expected
        assert {row["label_id"] for row in replayed} <= {row["label_id"] for row in history}
        assert {row["label_id"] for row in training if not row["is_replayed"]} == {row["label_id"] for row in fresh}
        assert {row["origin_iteration"] for row in fresh} == {iteration}
        assert all(row["origin_iteration"] < iteration for row in replayed)
        history += fresh
    assert len(history) > 20


def test_mlflow_holds_the_whole_lineage(store):
    versions = registry.versions(store, "small", "policy")
    assert [each.version for each in versions] == [1, 2, 3]
    assert [each.aliases for each in versions] == [(), (), ("champion", "current")]
    for each in versions[1:]:
        assert each.tags["grpo.parent"] == each.tags["grpo.reference"] == f"models:/small-policy/{each.version - 1}"
        assert each.tags["grpo.reward_model"] == f"models:/small-reward/{each.version - 1}"
    rewards = registry.versions(store, "small", "reward")
    assert [each.tags["grpo.parent"] for each in rewards] == [
        "models:/small-policy/1",
        "models:/small-reward/1",
        "models:/small-reward/2",
    ]
    records = iterations.records(store, "small")
    assert [each.tags["grpo.digest"] for each in versions] == [record.policy.digest for record in records]


def test_every_run_is_finished_and_has_its_datasets_metrics_and_models(store):
    mlflow = client(store)
    experiment = mlflow.get_experiment_by_name("small").experiment_id
    found = [mlflow.get_run(run.info.run_id) for run in mlflow.search_runs([experiment])]
    runs = {run.data.tags["grpo.iteration"]: run for run in found}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert set(runs) == {"0", "1", "2"}
    digests = {each.dataset.digest for each in runs["1"].inputs.dataset_inputs}
    for path in ("step-001/completions", "step-002/rewards", "step-002/samples", "pairs", "reward_training"):
        assert tables.ref_at(store / "small" / "iteration-0001" / path).digest[:32] in digests
    assert len(mlflow.get_metric_history(runs["1"].info.run_id, "update/loss")) == 2
    assert len(runs["1"].inputs.model_inputs) == 2
    assert len(runs["1"].outputs.model_outputs) == 2
    assert runs["1"].data.params["update.kl.beta"] == "0.01"


def test_only_the_last_step_of_an_iteration_keeps_its_weights(store):
    kept = sorted(
        str(path.parent.relative_to(store / "small"))
        for path in store.glob("small/iteration-*/step-*/policy/model.safetensors")
    )
    assert kept == ["iteration-0001/step-002/policy", "iteration-0002/step-002/policy"]


def test_every_policy_differs_from_its_reference(store):
    digests = [record.policy.digest for record in iterations.records(store, "small")]
    assert len(set(digests)) == 3
    assert [record.reference.digest for record in iterations.records(store, "small")][1:] == digests[:2]


def test_every_iteration_has_its_report_beside_it_and_in_mlflow(store):
    mlflow = client(store)
    experiment = mlflow.get_experiment_by_name("small").experiment_id
    runs = {run.data.tags["grpo.iteration"]: run.info.run_id for run in mlflow.search_runs([experiment])}
    for iteration in range(3):
        path = reports.report_path(store, "small", iteration)
        page = path.read_text(encoding="utf-8")
        assert f"<title>small · iteration {iteration}</title>" in page
        assert page.count("<tr class=") == iteration + 1
        assert "&lt;answer&gt;" in page
        assert "<answer>" not in page
        assert Path(mlflow.download_artifacts(runs[str(iteration)], "report.html")).read_bytes() == path.read_bytes()


def test_verifier_and_reward_model_are_compared_on_the_held_out_completions(store):
    for record in iterations.records(store, "small"):
        rewards = tables.read(tables.ref_at(Path(record.tables["evaluation"].uri).parent / "rewards"))
        gap = sum(row["reward_model_reward"] - row["is_correct"] for row in rewards) / len(rewards)
        assert record.metrics["evaluation/reward_model_gap"] == pytest.approx(gap)
        assert record.metrics["evaluation/num_agreement_rows"] == len(rewards) == 32
        assert (record.alarm, record.best_iteration) == ("", 0)  # the scripted engine's accuracy never changes


class TestCommandLine:
    def test_report_writes_the_page_anew_and_prints_where_it_is(self, uninterrupted):
        path = reports.report_path(uninterrupted.store, "small", 1)
        before = path.read_bytes()
        path.unlink()
        done = uninterrupted("report", "small", "--iteration", "1")
        assert done.stdout == f"{path}\n", done.stderr
        assert path.read_bytes() == before
        assert uninterrupted("report", "small").stdout.strip().endswith("iteration-0002/report.html")

    def test_show_tells_where_verifier_and_reward_model_disagree(self, uninterrupted):
        table = str(uninterrupted.store / "small" / "iteration-0001" / "evaluation" / "rewards")
        shown = uninterrupted("show", table, "--disagree", "--num", "2").stdout
        assert shown.count("apart by 0.") == 2
        assert "30 more rows" in shown

    def test_lineage_and_show_print_what_is_there(self, uninterrupted):
        listed = uninterrupted("lineage").stdout
        assert "small" in listed
        shown = uninterrupted("lineage", "small").stdout
        for text in ("small-policy", "@champion", "models:/small-reward/2", "digest"):
            assert text in shown
        table = str(uninterrupted.store / "small" / "iteration-0001" / "step-001" / "rewards")
        best = uninterrupted("show", table, "--best", "--num", "1").stdout
        assert "reward 1" in best
        assert "<answer>" in best
        worst = uninterrupted("show", table, "--worst", "--num", "1").stdout
        assert "reward 0" in worst

    def test_a_recipe_that_contradicts_the_lineage_names_the_keys(self, uninterrupted, recipe):
        done = uninterrupted("run", str(recipe), "--set", "update.kl.beta=0.5")
        assert done.returncode == 2
        assert "update.kl.beta: recorded 0.01, asked 0.5" in done.stderr
        assert "--lineage" in done.stderr

    def test_a_second_run_on_a_held_lineage_exits_at_once(self, uninterrupted, recipe):
        with lock.hold(uninterrupted.store, "small"):
            done = uninterrupted("run", str(recipe))
        assert done.returncode == 1
        assert f"held by process {os.getpid()}" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "status", "message"),
        [
            (["run", "nothing"], 2, "no recipe is called 'nothing'"),
            (["run", "none.toml"], 2, "no recipe file"),
            (["run", "quickstart", "--set", "rollout.group_size=1"], 2, "at least 2"),
            (["run", "quickstart", "--set", "update.lerning_rate=1"], 2, "update.lerning_rate: is not a setting"),
            (["run", "quickstart", "--set", "seed=x"], 2, "seed"),
            (["run", "quickstart", "--lineage", "a/b"], 2, "lineage name 'a/b'"),
            (
                ["run", "quickstart", "--set", "policy={kind='local',path='/none'}", "--lineage", "new"],
                2,
                "'/none' is not a folder",
            ),
            (["run", "gsm8k"], 2, "prompts.source.path"),
            (
                ["run", "quickstart", "--set", "prompts.num_heldout=5000", "--lineage", "new"],
                2,
                "4256 prompts leave none",
            ),
            (["lineage", "nothing"], 2, "no lineage 'nothing'"),
            (["show", "/none", "--best", "--disagree"], 2, "take one of --best, --worst and --disagree"),
            (["report", "nothing"], 2, "no lineage 'nothing'"),
            (["report", "small", "--iteration", "9"], 2, "not 9"),
            (["show", "/none"], 1, "no committed table"),
        ],
    )
    def test_bad_input_is_one_readable_error_before_any_compute(self, uninterrupted, arguments, status, message):
        done = uninterrupted(*arguments)
        assert done.returncode == status
        assert message in done.stderr
        assert "Traceback" not in done.stderr

    def test_help_answers_without_torch(self):
        code = "import sys, flows.cli; print(sorted({'torch', 'mlflow', 'prefect', 'transformers'} & set(sys.modules)))"
        root = Path(__file__).parents[2]
        assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout == "[]\n"


def test_the_same_command_again_goes_on_with_further_iterations(uninterrupted, recipe):
    done = uninterrupted("run", str(recipe), "--iterations", "1")
    assert done.returncode == 0, done.stderr
    summary = summaries.read_summary(uninterrupted.store, "small")
    assert [row["iteration"] for row in summary["iterations"]] == [1, 2, 3]
    assert [each.version for each in registry.versions(uninterrupted.store, "small", "policy")] == [1, 2, 3, 4]
