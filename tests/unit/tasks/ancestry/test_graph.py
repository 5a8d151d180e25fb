"""The graph of a lineage: every edge that Algorithm 1 makes and no other, and what was decided about each version."""

import json

import pytest

from tasks.ancestry.answers import uses, why
from tasks.ancestry.graph import graph_of
from tests.unit.tasks.ancestry.lineage_records import DECISIONS, RECORDS, STANDING, STEPS, record, ref, table

GRAPH = graph_of("quick", RECORDS, STANDING, STEPS, DECISIONS)


def into(identity, graph=GRAPH):
    return {(edge.relation, edge.source) for edge in graph.edges if edge.target == identity}


def test_a_policy_comes_from_its_parent_the_reward_model_that_scored_it_and_its_samples():
    assert into("policy:2") == {
        ("parent", "policy:1"),
        ("reference", "policy:1"),
        ("reward_model", "reward:1"),
        ("learnt_from", "samples:1"),
    }
    # the refused reward model did not score iteration 2
    assert ("reward_model", "reward:1") in into("policy:3")
    assert ("reward_model", "reward:2") not in into("policy:3")
    assert into("policy:1") == set()


def test_data_runs_from_prompts_over_rollouts_rewards_and_samples():
    assert into("completions:2") == {("read", "prompts:0"), ("wrote", "policy:2")}
    assert into("rewards:2") == {("read", "completions:2"), ("wrote", "reward:1")}
    assert into("samples:2") == {("read", "rewards:2")}
    assert into("evaluation:2") == {("measured", "policy:3"), ("read", "prompts:0")}


def test_a_reward_model_learns_from_new_labels_and_the_replayed_ones_of_earlier_iterations():
    assert into("reward_training:2") == {("read", "labels:2"), ("replayed", "labels:0"), ("replayed", "labels:1")}
    assert into("reward:3") == {("parent", "reward:1"), ("learnt_from", "reward_training:2")}
    unmixed = graph_of("quick", [record(0), record(1, metrics={})], [record(0), record(1)], {}, [])
    assert into("reward_training:1", unmixed) == {("read", "labels:1")}


def test_marks_say_who_is_current_and_champion_after_the_decisions():
    marks = {node.id: node.marks for node in GRAPH.nodes if node.marks}
    assert marks == {
        "policy:1": ("champion",),
        "policy:2": ("current",),
        "policy:3": ("guard", "alarm", "rolled back"),
        "reward:2": ("refused",),
        "reward:3": ("current",),
    }
    assert GRAPH.node("policy:3").notes == (
        "kl 0.5 above 0.1",
        "kept: 0.1 worse",
        "over-optimisation",
        "the next iteration starts from policy v2",
    )
    assert GRAPH.node("policy:1").notes == (
        "made champion after iteration 2 by kim at 2026-12-01T00:00:00+00:00: <b>safer</b>",
    )


def test_a_reward_model_that_was_retrained_between_two_iterations_is_a_node_and_scored_what_followed():
    decision = {**DECISIONS[0], "kind": "reward", "reward": ref("reward", 9), "after_iteration": 0}
    standing = [{**RECORDS[0], "reward": ref("reward", 9)}, RECORDS[1]]
    graph = graph_of("quick", RECORDS[:2], standing, STEPS, [decision])
    assert into("reward:9", graph) == {("parent", "reward:1")}
    assert ("reward_model", "reward:9") in into("policy:2", graph)
    assert ("reward_model", "reward:1") not in into("policy:2", graph)
    assert graph.node("reward:9").notes[0].startswith("taken as the reward model after iteration 0 by kim")
    assert "champion" in graph.node("policy:2").marks


def test_a_branch_reads_the_prompts_of_its_first_record_whatever_its_iteration():
    first = record(1)
    first["tables"]["prompts"] = table("prompts", 1)
    graph = graph_of("branch", [first, record(2)], [first, record(2)], STEPS, [])
    assert ("read", "prompts:0") in into("completions:2", graph)
    assert ("read", "prompts:0") in into("evaluation:2", graph)


def test_a_critic_has_a_parent_and_stands_behind_the_policy():
    records = [record(0, critic=ref("critic", 1)), record(1, critic=ref("critic", 2))]
    graph = graph_of("ppo", records, records, STEPS, [])
    assert into("critic:2", graph) == {("parent", "critic:1"), ("learnt_from", "samples:1")}
    assert ("critic", "critic:1") in into("policy:2", graph)


def test_the_json_form_keeps_its_keys():
    found = json.loads(GRAPH.model_dump_json())
    assert list(found) == ["format", "lineage", "nodes", "edges"]
    assert found["format"] == 1
    assert list(found["nodes"][0]) == [
        "id",
        "kind",
        "iteration",
        "label",
        "detail",
        "digests",
        "uris",
        "marks",
        "notes",
    ]
    assert list(found["edges"][0]) == ["source", "target", "relation"]
    rollouts = next(node for node in found["nodes"] if node["id"] == "completions:1")
    assert rollouts["detail"] == "16 rows"
    assert len(rollouts["digests"]) == 2


def test_why_names_parents_data_scores_guards_and_decisions():
    records = [
        RECORDS[0],
        RECORDS[1],
        {**RECORDS[2], "metrics": {"evaluation/accuracy": 0.75, "evaluation/r": float("nan")}},
    ]
    answer = why(GRAPH, records, DECISIONS, "3", ["kl.beta: recorded 0.1, asked 0.2"])
    assert answer.parents == {"parent": "policy:2", "reference": "policy:2", "reward_model": "reward:1"}
    assert [node.id for node in answer.data] == ["prompts:0", "completions:2", "rewards:2", "samples:2", "evaluation:2"]
    assert answer.scores == {"evaluation/accuracy": 0.75, "evaluation/r": None}
    assert answer.guards == ("kl 0.5 above 0.1",)
    assert (answer.champion, answer.alarm, answer.decisions) == ("kept: 0.1 worse", "over-optimisation", ())
    assert answer.changed == ("kl.beta: recorded 0.1, asked 0.2",)
    assert json.loads(answer.model_dump_json())["scores"]["evaluation/r"] is None
    assert why(GRAPH, RECORDS, DECISIONS, "1", []).decisions[0].startswith("made champion after iteration 2 by kim")


def test_uses_names_every_policy_that_the_reward_model_scored():
    answer = uses(GRAPH, "1")
    assert [node.id for node in answer.policies] == ["policy:2", "policy:3"]
    assert [node.id for node in answer.tables] == ["rewards:1", "rewards:2"]
    assert uses(GRAPH, "2").policies == ()


@pytest.mark.parametrize(("ask", "version"), [(uses, "7"), (lambda graph, v: why(graph, RECORDS, [], v, []), "x")])
def test_a_version_that_is_not_there_is_named_with_those_that_are(ask, version):
    with pytest.raises(ValueError, match=rf"lineage 'quick' has no \w+:{version}; there are: \w+:1, "):
        ask(GRAPH, version)
