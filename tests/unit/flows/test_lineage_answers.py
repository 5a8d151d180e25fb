"""What `igrpo lineage` says, in the terminal and as JSON, of a store with three finished iterations."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from flows import lineage_answers, lineage_view
from storage import checkpoints, decisions, iterations, lineages, lock, tables
from storage.errors import UnknownLineage
from storage.iterations import IterationRecord
from storage.manifest import Provenance
from tasks.draw_lineage import GONE, WEIGHTS_REMOVED, make_lineage_page, read_graph

WHY = "[bold]safer[/bold] <script>window.hit=1</script>"


def checkpoint(place, role, number, **settings):
    def write(folder):
        (folder / "model.safetensors").write_text(f"{role} {number}")

    ref = checkpoints.publish(place, role, write, Provenance(stage=role, inputs={}, config=settings))
    return ref.model_copy(update={"version": str(number)})


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    with lock.hold(root, "quick") as place:
        lineages.record_recipe(place, {"name": "quick"})
        told = []
        for iteration in range(3):
            here = place.at(iteration=iteration)
            measured = tables.publish(here, "evaluation", [], Provenance(stage="evaluation", inputs={}))
            policy = checkpoint(
                here.at(iteration=iteration, section="step-001"), "policy", iteration + 1, rate=iteration
            )
            record = IterationRecord(
                iteration=iteration,
                policy=policy,
                reference=told[-1].policy if told else policy,
                reward=checkpoint(here, "reward", iteration + 1),
                champion=policy,
                tables={"evaluation": measured, "champion_evaluation": measured},
                metrics={"evaluation/accuracy": 0.5, "evaluation/reward_model_rank_correlation": float("nan")},
                seconds=1.0,
            )
            told.append(iterations.publish_record(here, record, record.reward))
        decisions.take(place, "promote", told[0], told[-1], WHY, "kim")
    return root


def shown(paint, width=200):
    out = Console(width=width, record=True, force_terminal=False)
    paint(out)
    return out.export_text()


def answered(root, policy=None, reward_model=None):
    answer = lineage_answers.answer_to(root, "quick", policy, reward_model)
    return shown(lambda out: lineage_answers.print_answer(out, answer))


def test_the_tree_holds_every_version_its_edges_its_marks_and_its_digest(root):
    text = shown(lambda out: lineage_view.show_lineage(out, root, "quick"))
    lines = [line.strip("│├└─ ") for line in text.splitlines()]
    assert lines.count("parent: models:/quick-policy/1") == 2  # policy v2 and the first reward model
    assert "reward model: models:/quick-reward/2" in lines
    assert "policy v1 iteration 0 · accuracy 0.500 @champion" in lines
    assert "policy v3 iteration 2 · accuracy 0.500 @current" in lines
    digest = read_graph(root, "quick").node("policy:3").digests[0]
    assert f"digest {digest[:12]}" in lines


def test_what_people_wrote_is_not_read_as_markup(root):
    assert WHY in answered(root, policy="1")
    assert WHY in shown(lambda out: lineage_view.show_lineage(out, root, "quick"))


@pytest.mark.parametrize("version", ["3", "v3"])
def test_why_says_what_changed_since_the_parent_and_dashes_what_is_no_number(root, version):
    text = answered(root, policy=version)
    assert "quick: policy v3 iteration 2" in text
    assert "rate: recorded 1, asked 2" in text
    assert "evaluation/accuracy 0.500" in text
    assert "evaluation/reward_model_rank_correlation -" in text
    assert "parent: models:/quick-policy/2" in text


def test_uses_names_the_policies(root):
    text = answered(root, reward_model="2")
    assert "trained models:/quick-policy/3" in text
    assert "quick-policy/2" not in text
    assert "no finished iteration was scored with it" in answered(root, reward_model="3")


def test_each_answer_is_one_json_object_whatever_the_width(root):
    for asked in ({}, {"policy": "2"}, {"reward_model": "1"}):
        answer = lineage_answers.answer_to(root, "quick", **{"policy": None, "reward_model": None, **asked})
        found = json.loads(shown(lambda out, answer=answer: lineage_answers.print_json(out, answer), width=40))
        assert found["lineage"] == "quick"


def test_the_page_stands_in_the_lineages_folder_and_its_links_lead_to_what_is_there(root):
    path = make_lineage_page(root, "quick")
    assert path == root / "quick" / "lineage.html"
    page = path.read_text()
    for address in ("iteration-0002/step-001/policy/", "iteration-0001/reward/"):
        assert f'href="{address}"' in page
        assert (path.parent / address).is_dir()
    assert "report.html" not in page  # none was written
    assert "<script>" not in page


def test_what_was_removed_is_said_at_its_node(root, tmp_path):
    with lock.hold(root, "quick") as place:
        told = iterations.records(root, "quick")
        checkpoints.prune(place.at(iteration=1), told[1].policy)
    assert WEIGHTS_REMOVED in read_graph(root, "quick").node("policy:2").notes
    Path(told[1].policy.uri).rename(tmp_path / "away")
    assert GONE in read_graph(root, "quick").node("policy:2").notes


def test_unknown_names_and_lineages_without_an_iteration_are_told(root, tmp_path):
    with pytest.raises(UnknownLineage, match=r"no lineage 'slow' in .*; there are: quick"):
        lineage_view.require_lineage(root, "slow")
    with lock.hold(tmp_path, "new") as place:
        lineages.record_recipe(place, {"name": "new"})
    with pytest.raises(UnknownLineage, match="'new' has no finished iteration yet"):
        read_graph(tmp_path, "new")


def test_a_branch_says_where_it_began(root, monkeypatch):
    parent = lineages.Parent(lineage="other", version="7", iteration=2)
    monkeypatch.setattr(lineages, "read_parent", lambda *_: parent)
    assert read_graph(root, "quick").node("policy:1").notes[0] == "branched from models:/other-policy/7"
    assert "branched from models:/other-policy/7" in answered(root)
    assert not any("branched" in note for note in read_graph(root, "quick").node("policy:3").notes)
