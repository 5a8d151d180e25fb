"""The report of an iteration: what it says, and that no completion can break out of it."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.reporting.contents import MISSING, Tables, contents_of
from tasks.reporting.page import FOLDER, STYLE, render
from tasks.reporting.visible import MAX_CHARACTERS, visible

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)  # beside other work

NASTY = {
    "a script": "<script>alert(1)</script>",
    "a quote out of an attribute": "\"><img src=x onerror='alert(1)'>",
    "an end of everything": "</pre></article></main></body></html><h1>mine</h1>",
    "an ampersand": "a & b &lt;script&gt; &#60;b&#62;",
    "a comment": "<!-- --!> <![CDATA[ ]]>",
    "a template": "{{ 7 * 7 }} {% raw %} {# #}",
    "NUL": "a\x00b\x1b[31mred\x07\x7f\x9b",
    "lone surrogates": "a\ud800b\udfff",
    "right to left": "\u202egnp.exe\u202c \u2067x\u2069 \u200fאב\u061c",
    "a style sheet": "<style>*{display:none}</style><link rel=stylesheet href=http://x.example/a.css>",
    "Korean and an emoji": "정답은 42입니다 👩\u200d🔬",
}


def rewards_row(group, index, correct, probability, reward=None):
    return {
        "group_id": group,
        "prompt_id": group,
        "sample_index": index,
        "reward": probability if reward is None else reward,
        "is_correct": correct,
        "reward_model_reward": probability,
    }


def completion_row(group, index, text):
    return {
        "group_id": group,
        "prompt_id": group,
        "sample_index": index,
        "text": text,
        "completion_token_ids": [7] * 5,
        "is_truncated": index == 1,
    }


def record(iteration, **changes):
    model = {"version": str(iteration + 1)}
    metrics = {
        "evaluation/accuracy": 0.25 + iteration / 10,
        "evaluation/reward_model_mean": 0.5,
        "evaluation/reward_model_gap": -0.125,
        "reward_mean": 0.4375,
        "reward_model/heldout_ece_after": 0.0625,
        "reward_model/anchor_auc_before": 0.75,
        "reward_model/anchor_auc_after": 0.5,
        "reward_model/temperature": 1.25,
    }
    return {
        "iteration": iteration, "metrics": metrics, "policy": model, "reward": model, "champion": {"version": "1"},
        "alarm": "", "guards": (), "promotion": "may be worse", "best_iteration": 1, "outcome": "updated", **changes,
    }  # fmt: skip


STAGES = {
    "": {"reward": {"loss": 1.0}},
    "step-001": {
        "completions": {"num_completions": 4.0, "num_truncated": 1.0, "mean_completion_tokens": 10.0},
        "rewards": {"num_rows": 4.0, "num_without_reward": 0.0, "reward_mean": 0.5, "accuracy": 0.25},
        "samples": {"num_groups": 2.0, "num_no_signal_groups": 1.0},
        "policy": {"kl": 0.015625, "entropy": 0.75, "num_trained_tokens": 40.0},
    },
}


def page(text="x", prompt="1+1=", answer="2", records=None, stages=STAGES, rewards=None):
    rewards = [rewards_row("g", 0, True, 0.125), rewards_row("g", 1, False, 0.875)] if rewards is None else rewards
    tables = Tables(
        selection=[{"group_id": "g", "prompt_id": "g", "prompt": prompt, "answer": answer}],
        completions=[completion_row("g", row["sample_index"], text) for row in rewards],
        rewards=rewards,
    )
    return render(contents_of("lineage", records or [record(0), record(1)], stages, tables))


class Elements(HTMLParser):
    """Every tag with its attributes, and the text of the page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("where", ["text", "prompt", "answer"])
@pytest.mark.parametrize("nasty", NASTY)
def test_nothing_that_a_completion_holds_becomes_an_element(nasty, where):
    harmless, found = Elements(page(**{where: "x"})), Elements(page(**{where: NASTY[nasty]}))
    assert found.tags == harmless.tags
    assert visible(NASTY[nasty]) in found.text


@UNHURRIED
@given(st.text(alphabet=st.characters(codec=None, exclude_categories=[]), max_size=60))
def test_any_text_leaves_the_page_as_it_is_built_and_can_be_written(text):
    found = page(text=text)
    assert Elements(found).tags == Elements(page()).tags
    assert "\x00" not in found.encode("utf-8").decode("utf-8")


def test_the_alarm_and_the_champions_reason_are_escaped_too():
    nasty = NASTY["a script"]
    for changes in ({"alarm": nasty}, {"promotion": nasty}):
        assert "<script" not in page(records=[record(0), record(1, **changes)])


def test_what_hides_or_turns_around_is_shown_as_its_code():
    assert visible("a\x00\u202eb\u2066\x7f\ufeff\r") == "a<U+0000><U+202E>b<U+2066><U+007F><U+FEFF><U+000D>"
    assert visible("\ud800x\udfff") == "\ufffdx\ufffd"
    assert visible("a\r\n\tb") == "a\n\tb"
    assert visible("👩\u200d🔬 정답") == "👩\u200d🔬 정답"


def test_a_long_text_is_cut_and_says_how_long_it_is():
    assert visible("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert visible("x" * 5000) == f"{'x' * MAX_CHARACTERS} … (5000 characters in all)"
    assert visible("\x00" * 5000).count("<U+0000>") == MAX_CHARACTERS


def test_the_page_forbids_scripts_and_fetches_nothing():
    found = page()
    tags = Elements(found).tags
    (policy,) = [attrs["content"] for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert {"script", "link", "img", "iframe", "object", "form", "a"}.isdisjoint(tag for tag, _ in tags)
    assert not [
        name for _, attrs in tags for name in attrs if name in ("src", "href", "style") or name.startswith("on")
    ]
    assert not re.search(r"https?://|url\(|@import", found)


def test_the_one_style_sheet_is_the_one_that_its_hash_allows():
    found = page()
    inside = re.search(r"<style>(.*?)</style>", found, re.DOTALL)[1]
    assert inside == (FOLDER / STYLE).read_text(encoding="utf-8")
    assert f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'" in found
    assert "prefers-color-scheme: dark" in inside


def figures(text):
    return dict(re.findall(r"<dt>(.*?)</dt><dd><b>(.*?)</b>", text))


def test_the_numbers_stand_under_their_names():
    found = figures(page())
    expected = {
        "accuracy": "0.350",
        "reward model&#39;s mean": "0.500",
        "reward": "0.500",
        "KL": "0.0156",
        "entropy": "0.750",
        "length": "10.0",
        "no signal": "0.500",
        "truncated": "0.250",
        "gap": "-0.125",
        "rank correlation": MISSING,
        "temperature": "1.25",
    }
    assert {name: found.get(name) for name in expected} == expected


def test_what_was_not_measured_is_a_dash_and_never_a_zero():
    nothing = [record(0, metrics={}, best_iteration=None)]
    text = page(records=nothing, stages={}, rewards=[])
    assert set(figures(text).values()) == {MISSING}
    assert "No held-out prompt has completions whose rewards differ." in text
    assert "No held-out completion was scored by both." in text
    assert "<svg" not in text  # one iteration is no course


def test_each_iteration_is_said_to_be_scored_by_the_reward_model_of_the_one_before():
    assert "scored by reward model: <b>v2</b>" in page(records=[record(0), record(1), record(2)])
    assert "scored by reward model: <b>v1</b>" in page(records=[record(0)])


def test_a_retraining_is_measured_on_either_side_and_what_was_not_measured_is_a_dash():
    body = page().split("The reward model after this iteration")[1].split("Best and worst")[0]
    assert "<td>anchor_auc</td><td>0.75</td><td>0.5</td>" in body
    assert "<td>heldout_ece</td><td>–</td><td>0.0625</td>" in body
    tiles = body.split("<dl")[1]
    assert ("temperature" in tiles, "anchor_auc" in tiles, "1.25" in tiles) == (True, False, True)


def test_what_the_guards_say_stands_in_the_head_and_is_text():
    body = page(records=[record(0), record(1, guards=("guard kl: <b>9</b> is above 1",))])
    assert '<p class="guard">⚠ guard kl: &lt;b&gt;9&lt;/b&gt; is above 1</p>' in body
    assert 'class="guard"' not in page()


def test_the_alarm_is_seen_in_the_head_the_chart_and_the_table():
    said = "over-optimisation, raised at iteration 1"
    with_alarm = page(records=[record(0), record(1, alarm=said)])
    assert 'role="alert"' in with_alarm
    assert said in with_alarm
    assert with_alarm.count('class="mark"') == 1
    assert 'class="now standing"><td>1 ⚠</td>' in with_alarm
    for mark in ('role="alert"', 'class="mark"', "⚠", "standing"):
        assert mark not in page().split("</style>")[1]


def test_the_lineage_has_a_row_for_every_iteration_so_far():
    body = page(records=[record(0), record(1), record(2)]).split("The lineage so far")[1].split("</table>")[0]
    assert re.findall(r"<tr class=\"(.*?)\"><td>(\d)</td><td>(.*?)</td><td>(.*?)</td>", body) == [
        ("", "0", "0.438", "0.250"),
        ("", "1", "0.438", "0.350"),
        ("now", "2", "0.438", "0.450"),
    ]


def test_best_and_worst_stand_side_by_side_and_disagreements_come_in_their_order():
    rewards = [rewards_row("g", 0, True, 0.5), rewards_row("g", 1, False, 0.9), rewards_row("g", 2, True, 0.2)]
    text = page(rewards=rewards)
    contrast, disagree = text.split("Best and worst of a prompt")[1].split("Where verifier and reward model disagree")
    assert re.findall(r"reward model: ([\d.]+)</span>", contrast) == ["0.900", "0.200"]
    assert re.findall(r"apart by ([\d.]+)<", disagree) == ["0.900", "0.800", "0.500"]
    assert "✗ verifier: wrong" in contrast
    assert "5 tokens, truncated" in contrast


def test_completions_that_one_side_did_not_score_are_shown_as_such():
    rewards = [rewards_row("g", 0, None, 0.9), rewards_row("g", 1, True, None, reward=0.1)]
    text = page(rewards=rewards)
    assert "verifier: not scored" in text
    assert f"reward model: {MISSING}" in text
    assert "No held-out completion was scored by both." in text
