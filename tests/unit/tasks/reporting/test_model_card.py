"""The model card: numbers with intervals, licences that are known or said to be unknown, text that can not break it."""

import json
import re

import pytest

from flows.recipes import load_recipe, shipped
from tasks.reporting.licences import POLICIES, PROMPTS, card_licence, licences
from tasks.reporting.model_card import Data, Score, Version, model_card, scores

VERSION = Version(
    lineage="quick", version="3", iteration=2, digest="d" * 64, code="0.1.0, commit abc", created_at="2026-01-02",
    parents={"parent": "models:/quick-policy/2", "reward model": "models:/quick-reward/2"}, note="Branched from x.",
)  # fmt: skip


def recipe():
    return load_recipe("quickstart", []).model_dump(mode="json")


def row(pass_at_1, greedy_correct):
    return {"pass_at_1": pass_at_1, "greedy_correct": greedy_correct}


def test_scores_are_means_with_the_percentile_interval_over_prompts():
    sampled, greedy = scores([row(0.25, True), row(0.75, True), row(None, None), row(0.5, True)], seed=1)
    assert (sampled.name, sampled.mean, sampled.num_prompts) == ("accuracy, sampled", 0.5, 3)
    # three values: the mean of a resample is 0.25 or 0.75 with probability 1/27 each, so both ends are reached
    assert (sampled.low, sampled.high) == (0.25, 0.75)
    assert greedy == Score("accuracy, greedy", 1.0, 1.0, 1.0, 3)
    assert scores([row(0.25, True), row(0.75, True), row(0.5, True)], seed=1)[0] == sampled


def test_what_was_not_measured_is_left_out():
    assert scores([row(None, None)], seed=1) == []
    assert "## Scores\n\nNot measured." in model_card(VERSION, recipe(), [], [])


def test_the_card_says_what_it_is_how_good_from_what_and_how_to_load_it():
    card = model_card(
        VERSION, recipe(), [Score("accuracy, sampled", 0.8744, 0.85, 0.9, 256)], [Data("labels", 12, "e" * 64)]
    )
    assert card.startswith("---\nlibrary_name: transformers\nlicense: unknown\n")
    assert "# quick, policy v3" in card
    assert "| accuracy, sampled | 0.874 | 0.850 to 0.900 | 256 |" in card
    assert "| parent | models:/quick-policy/2 |" in card
    assert "| reward model | models:/quick-reward/2 |" in card
    assert "| iterations | 2 |" in card
    assert f"| data/labels.parquet | 12 | {'e' * 64} |" in card
    assert "Branched from x." in card
    assert "AutoModelForCausalLM.from_pretrained" in card
    (shown,) = re.findall(r"```json\n(.*?)```", card, flags=re.S)
    assert json.loads(shown) == recipe()


def test_text_of_a_recipe_can_not_break_a_table():
    made = recipe()
    made["prompts"]["source"] = {"kind": "jsonl", "path": "a|b\n| c"}
    card = model_card(VERSION, made, [], [])
    assert "| prompts: jsonl a\\|b \\| c | unknown: the user's file |" in card


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_has_a_card(name):
    overrides = ["prompts.source.path=x.jsonl"] if name in ("gsm8k", "korean") else []
    made = load_recipe(name, overrides).model_dump(mode="json")
    assert len(licences(made)) == 2
    assert "## Licences" in model_card(VERSION, made, [], [])


def test_every_kind_of_source_has_a_row_and_a_new_kind_is_unknown():
    from tasks.curriculum.sources import SOURCES as PROMPT_SOURCES
    from tasks.policy.sources import SOURCES as POLICY_SOURCES

    def kinds(sources):
        return {each.model_fields["kind"].annotation.__args__[0] for each in sources}

    assert (set(PROMPTS), set(POLICIES)) == (kinds(PROMPT_SOURCES), kinds(POLICY_SOURCES))
    made = {"prompts": {"source": {"kind": "new"}}, "policy": {"kind": "smollm2"}}
    assert licences(made) == {"prompts: new": "unknown", "first policy: smollm2": "Apache-2.0 (SmolLM2-135M-Instruct)"}
    assert card_licence(made) == "apache-2.0"


def test_a_hub_model_is_named_with_its_revision():
    made = {"prompts": {"source": {"kind": "arithmetic"}}, "policy": {"kind": "hub", "name": "a/b", "revision": "r1"}}
    assert "first policy: hub a/b@r1" in licences(made)
