"""What the journal says of versions: parents with the decisions in force, and decisions by hand with who and why."""

from pathlib import Path

import pytest

from storage import checkpoints, decisions, iterations, journal, lineages, tables, version_entries
from storage.iterations import IterationRecord
from storage.manifest import Provenance
from tasks.journal_iteration import write_entries


def checkpoint(place, role, number, text=""):
    def write(folder):
        (folder / "model.safetensors").write_text(f"{role} {number} {text}")

    ref = checkpoints.publish(place, role, write, Provenance(stage=role, inputs={}))
    return ref.model_copy(update={"version": str(number)})


@pytest.fixture
def records(place):
    """Three finished iterations, each with the policy before as reference."""
    lineages.record_recipe(place, {"name": "r"})
    found = []
    for iteration in range(3):
        here = place.at(iteration=iteration)
        policy, reward = (checkpoint(here, role, iteration + 1) for role in ("policy", "reward"))
        measured = tables.publish(here, "evaluation", [], Provenance(stage="evaluation", inputs={}))
        record = IterationRecord(
            iteration=iteration,
            policy=policy,
            reference=found[-1].policy if found else policy,
            reward=reward,
            champion=policy,
            tables={"evaluation": measured, "champion_evaluation": measured},
            metrics={"evaluation/accuracy": float("nan")},
            seconds=1.0,
            guards=("kl 0.5 above 0.1", "entropy 0 below 1") if iteration == 2 else (),
            rolled_back_to=found[0].policy if iteration == 2 else None,
        )
        found.append(iterations.publish_record(here, record, reward))
    return found


def entries(place, kind):
    pending = journal.pending(Path(place.root), place.lineage)
    return [each.entry for each in pending if each.entry.kind == kind]


def told(place, records, taken=()):
    write_entries(place.at(iteration=records[-1].iteration), records, taken)
    return {each.content["ref"]["role"]: each.content["tags"] for each in entries(place, "version")}


def test_the_edges_of_a_version_are_its_tags(place, records):
    tags = told(place, records[:2])
    assert tags["policy"]["grpo.parent"] == tags["policy"]["grpo.reference"] == "models:/lineage-policy/1"
    assert tags["policy"]["grpo.reward_model"] == tags["reward"]["grpo.parent"] == "models:/lineage-reward/1"
    assert tags["policy"]["grpo.datasets"].startswith("evaluation:")
    assert tags["policy"]["grpo.datasets"].endswith(":0")
    (consumed,) = entries(place, "consumed")
    assert [(ref["role"], ref["version"]) for ref in consumed.content["refs"]] == [("policy", "1"), ("reward", "1")]


def test_a_reward_model_that_was_retrained_in_between_is_the_one_that_scored(place, records):
    other = checkpoint(place.at(iteration=0, section="retrain-01"), "reward", 9)
    decisions.take_reward(place, other, records[0].model_copy(update={"iteration": 3}), "more labels", "kim")
    taken = [
        each.model_copy(update={"after_iteration": 0}) for each in decisions.decisions(Path(place.root), place.lineage)
    ]
    tags = told(place, records[:2], taken)
    assert tags["policy"]["grpo.reward_model"] == tags["reward"]["grpo.parent"] == "models:/lineage-reward/9"
    (consumed,) = entries(place, "consumed")
    assert [ref["version"] for ref in consumed.content["refs"]] == ["1", "9"]


def test_guards_and_what_a_rollback_goes_on_from_stand_on_the_version(place, records):
    tags = told(place, records)
    assert tags["policy"]["grpo.guards"] == "kl 0.5 above 0.1; entropy 0 below 1"
    assert tags["policy"]["grpo.rolled_back_to"] == "models:/lineage-policy/1"
    assert "grpo.guards" not in tags["reward"]


def test_a_number_that_is_not_finite_passes_through_the_journal(place, records):
    told(place, records[:1])
    (measured,) = entries(place, "metrics")
    assert str(measured.content["metrics"]["evaluation/accuracy"]) == "nan"


def test_every_decision_about_a_version_is_kept_with_who_and_why(place, records):
    for why, by in (("first look", "kim"), ("second look", "lee")):
        decisions.take(place, "promote", records[0], records[2], why, by)
    taken = decisions.decisions(Path(place.root), place.lineage)
    version_entries.write_decision_tags(place.at(iteration=2), taken[1], taken)
    (entry,) = entries(place, "version_tags")
    assert entry.content["ref"]["version"] == "1"
    assert entry.content["tags"] == {"grpo.promote": f"{taken[0].sentence}; {taken[1].sentence}"}
    assert "by kim" in taken[0].sentence
    assert "second look" in taken[1].sentence


def test_every_version_gets_a_page_with_the_strip_of_the_records_before_it(place, records):
    told(place, records)
    pages = {each.content["ref"]["role"]: each.content for each in entries(place, "drawing")}
    assert set(pages) == {"policy", "reward"}
    strip = pages["policy"]["strip"]
    assert strip.count("<div>") == 3
    for version in (1, 2, 3):
        assert f"#/models/lineage-policy/versions/{{version:policy:{version}}}" in strip
    assert len(pages["policy"]["pictures"]) == 9
    assert all(path.startswith("lineage/policy-3/") for path in pages["policy"]["pictures"])


def test_the_aliases_follow_the_decisions(place, records):
    taken = [decisions.take(place, "rollback", records[0], records[2], "it stutters", "kim")]
    version_entries.write_aliases(place, decisions.in_force(records[2], taken), "x")
    held = [
        (each.content["alias"], each.content["ref"]["role"], each.content["ref"]["version"])
        for each in entries(place, "alias")
    ]
    assert held == [
        ("current", "policy", "1"),
        ("current", "reward", "3"),
        ("champion", "policy", "1"),
        ("champion", "reward", "3"),
    ]
