"""The champion, iteration by iteration, while the reward model is over-optimised: decided, recorded, registered."""

import json
import logging
from pathlib import Path

import pytest

from storage import checkpoints, iterations, lineages, lock, registry, summaries, tables
from storage.iterations import IterationRecord
from storage.manifest import Provenance
from storage.mlflow_client import client
from tasks.check_guards import Guarded
from tasks.evaluation.config import AlarmConfig, PromotionConfig
from tasks.journal_iteration import journal_iteration
from tasks.promote import promote
from tasks.promote_reward import RewardChoice
from tasks.record import record_bootstrap, record_iteration, tidy_up
from tasks.report import Round, Step, open_iteration

PROXY = [0.40, 0.50, 0.60, 0.70, 0.80]
TRUTH = [0.30, 0.36, 0.40, 0.37, 0.33]
NUM_PROMPTS = 100
# A gate that lets everything through: whatever keeps the champion back is the alarm.
OPEN_GATE = PromotionConfig(margin=0.99, num_resamples=100)


def model(place, role):
    here = place.at(iteration=place.iteration, section="step-001") if role == "policy" and place.iteration else place
    content = f"{role} {place.iteration}".encode()
    return checkpoints.publish(
        here,
        role,
        lambda folder: (folder / "model.safetensors").write_bytes(content),
        Provenance(stage=role, inputs={}),
        metrics={"num_updates": 1.0},
    )


def table(place, name, rows=(), **metrics):
    return tables.publish(
        place, name, list(rows), Provenance(stage=name, inputs={}), metrics=metrics, sources=("reward_model",)
    )


def evaluation(place, accuracy, reward_model_mean):
    """One row per prompt, so many of them right that the mean is ``accuracy``."""
    row = {"num_samples": 1, "num_scored": 1, "greedy_correct": None, "reward_model_mean": reward_model_mean}
    rows = [
        {**row, "prompt_id": f"p{index}", "num_correct": index < num, "pass_at_1": float(index < num)}
        for num in [round(accuracy * NUM_PROMPTS)]
        for index in range(NUM_PROMPTS)
    ]
    rows = [{**each, "num_correct": int(each["num_correct"])} for each in rows]
    return table(place, "evaluation", rows, accuracy=accuracy, reward_model_mean=reward_model_mean)


def decide(place, last, policy, measured, patience=2):
    return promote.fn(place, policy, measured, last, OPEN_GATE, AlarmConfig(patience=patience), 0)


def record(place, iteration, accuracy, reward_model_mean, last=None):
    """An iteration's record without MLflow, its champion chosen by ``promote``; gives the record and the decision."""
    here = place.at(iteration=iteration)
    policy, reward = (
        model(here, role).model_copy(update={"version": str(iteration + 1)}) for role in ("policy", "reward")
    )
    measured = evaluation(here, accuracy, reward_model_mean)
    numbers = {"evaluation/accuracy": accuracy, "evaluation/reward_model_mean": reward_model_mean}
    numbers = {name: value for name, value in numbers.items() if value is not None}
    decision = None if last is None else decide(here, last, policy, measured)
    champion = policy if decision is None or decision.is_new else decision.policy
    tables_by_name = {
        "evaluation": measured,
        "champion_evaluation": measured if decision is None else decision.evaluation,
    }
    made = IterationRecord(
        iteration=iteration, policy=policy, reference=policy, reward=reward, champion=champion,
        tables=tables_by_name, metrics=numbers, seconds=1.0,
    )  # fmt: skip
    return iterations.publish_record(here, made, reward), decision


def history(place, truth, proxy):
    found, last = [], None
    for iteration, (accuracy, mean) in enumerate(zip(truth, proxy, strict=True)):
        last, decision = record(place, iteration, accuracy, mean, last)
        found.append((last, decision))
    return found


def test_while_the_alarm_stands_the_champion_is_the_policy_of_the_best_iteration(place, caplog):
    with caplog.at_level(logging.WARNING):
        found = history(place, TRUTH, PROXY)
    champions = [each.champion.version for each, _ in found]
    assert champions == ["1", "2", "3", "4", "3"]  # the open gate lets iteration 3 through, the alarm takes it back
    decision = found[4][1]
    assert (decision.is_new, decision.best_iteration) == (False, 2)
    assert decision.policy == found[2][0].policy
    assert decision.evaluation == found[2][0].tables["evaluation"]
    assert decision.reason == decision.alarm
    assert "raised at iteration 4" in decision.alarm
    assert [bool(each.alarm) for _, each in found[1:]] == [False, False, False, True]
    warned = [entry for entry in caplog.records if entry.name == "tasks.promote"]
    assert [entry.getMessage() for entry in warned] == [decision.alarm]


def test_the_gate_decides_again_once_accuracy_rises(place):
    found = history(place, [*TRUTH, 0.30, 0.35], [*PROXY, 0.7, 0.9])
    assert [bool(each.alarm) for _, each in found[1:]] == [False, False, False, True, True, False]
    assert [each.champion.version for each, _ in found[4:]] == ["3", "3", "7"]


def test_a_longer_patience_waits(place):
    found = history(place, TRUTH[:4], PROXY[:4])
    last = found[-1][0]
    here = place.at(iteration=4)
    policy, measured = model(here, "policy"), evaluation(here, TRUTH[4], PROXY[4])
    assert decide(here, last, policy, measured, patience=3).alarm == ""
    assert decide(here, last, policy, measured, patience=2).alarm != ""


def test_the_decision_is_the_same_when_later_iterations_are_already_there(place):
    """A kill after the record, or a rebuilt iteration: what came later does not count."""
    found = history(place, TRUTH, PROXY)
    here = place.at(iteration=3)
    again = decide(here, found[2][0], found[3][0].policy, found[3][0].tables["evaluation"])
    assert again == found[3][1]


def record_fully(place, iteration, last):
    """An iteration through the verbs themselves, MLflow included."""
    here = place.at(iteration=iteration)
    opened = open_iteration.fn(here)
    policy, reward, measured = (
        model(here, "policy"),
        model(here, "reward"),
        evaluation(here, TRUTH[iteration], PROXY[iteration]),
    )
    named = {
        "prompts": table(here, "prompts"),
        "labels": table(here, "pairs"),
        "reward_training": table(here, "mixed_pairs", num_fresh=1.0, num_replayed=0.0),
        "evaluation": measured,
    }
    if last is None:
        return record_bootstrap.fn(opened, policy, reward, None, {**named, "champion_evaluation": measured})
    step = here.at(iteration=iteration, section="step-001")
    drawn = Round(
        selection=table(step, "selection"),
        completions=table(step, "completions"),
        rewards=table(step, "rewards", num_rows=1.0, num_without_reward=0.0, reward_mean=0.5),
        samples=table(step, "samples"),
    )
    steps = [Step(number=1, rounds=[drawn], policy=policy, critic=None)]
    champion = decide(here, last, policy, measured)
    chosen = RewardChoice(reward_model=reward, is_refused=False, reason="")
    return record_iteration.fn(opened, last, policy, reward, None, champion, chosen, named, steps, Guarded())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The worked example, five iterations, in a store with MLflow."""
    root = tmp_path_factory.mktemp("store")
    with lock.hold(root, "lineage") as place:
        lineages.record_recipe(place, {"name": "r"})
        last = None
        for iteration in range(5):
            last = record_fully(place, iteration, last)
            tidy_up.fn(place.at(iteration=iteration), last)
            journal_iteration.fn(place.at(iteration=iteration), last)
    return root


def test_the_alias_champion_is_moved_back_to_the_best_version(recorded):
    aliases = {each.version: each.aliases for each in registry.versions(recorded, "lineage", "policy")}
    assert aliases == {1: (), 2: (), 3: ("champion",), 4: (), 5: ("current",)}


def test_record_metrics_and_summary_hold_the_alarm(recorded):
    records = iterations.records(recorded, "lineage")
    assert [bool(each.alarm) for each in records] == [False, False, False, False, True]
    assert [each.best_iteration for each in records] == [0, 1, 2, 2, 2]
    assert [each.metrics.get("alarm/is_standing") for each in records] == [None, 0.0, 0.0, 0.0, 1.0]
    assert records[4].metrics["alarm/best_iteration"] == 2.0
    assert records[4].champion == records[2].policy
    rows = summaries.read_summary(recorded, "lineage")["iterations"]
    assert [row["alarm"] is None for row in rows] == [True, True, True, False]
    assert rows[3]["alarm"] == records[4].alarm == rows[3]["promotion"]
    assert [(row["champion_version"], row["best_iteration"]) for row in rows] == [(2, 1), (3, 2), (4, 2), (3, 2)]
    assert [row["reward_model_mean_after"] for row in rows] == PROXY[1:]


def test_mlflow_shows_the_alarm_on_the_run_and_on_the_version(recorded):
    mlflow = client(recorded)
    runs = mlflow.search_runs([mlflow.get_experiment_by_name("lineage").experiment_id])
    by_iteration = {run.data.tags["grpo.iteration"]: run.data for run in runs}
    assert "raised at iteration 4" in by_iteration["4"].tags["grpo.alarm"]
    assert [name for name, data in by_iteration.items() if "grpo.alarm" in data.tags] == ["4"]
    assert by_iteration["4"].metrics["alarm/is_standing"] == 1.0
    assert by_iteration["3"].metrics["alarm/is_standing"] == 0.0
    versions = mlflow.search_model_versions("name = 'lineage-policy'")
    marked = [int(each.version) for each in versions if "over-optimisation alarm" in each.description.split("\n")[0]]
    assert marked == [5]


def test_versions_say_when_they_became_champion_and_why(recorded):
    """The third policy twice: by the gate at iteration 2, and when the alarm at iteration 4 took it back."""
    tags = {each.version: each.tags for each in registry.versions(recorded, "lineage", "policy")}
    assert tags[1]["grpo.champion"] == "iteration 0: the first policy"
    assert tags[3]["grpo.champion"].startswith("iteration 4: ")
    assert tags[4]["grpo.champion"].startswith("iteration 3: ")
    assert "grpo.champion" not in tags[5]
    assert tags[5]["grpo.promotion"] == tags[3]["grpo.champion"].removeprefix("iteration 4: ")
    assert "raised at iteration 4" in tags[5]["grpo.alarm"]
    page = client(recorded).get_model_version("lineage-policy", "3").description
    assert "| became champion | iteration 4: " in page


def test_a_record_from_before_there_was_an_alarm_still_reads(place):
    history(place, TRUTH[:2], PROXY[:2])
    for iteration in range(2):
        path = place.lineage_folder / f"iteration-{iteration:04d}" / "record" / "record.json"
        old = {
            name: value
            for name, value in json.loads(path.read_text()).items()
            if name not in ("alarm", "best_iteration", "format")
        }
        assert IterationRecord.model_validate(old).alarm == ""
        assert IterationRecord.model_validate(old).best_iteration is None
    assert len(iterations.records(Path(place.root), "lineage")) == 2
