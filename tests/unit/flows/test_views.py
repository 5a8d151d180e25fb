"""What the terminal shows of rewards, disagreements and the alarm."""

import re

import pytest
from rich.console import Console

from flows.summary_view import alarm_lines, summary_table
from flows.table_view import show_table
from storage import tables
from storage.errors import CorruptArtifact
from storage.manifest import Provenance

ALARM = "over-optimisation, raised at iteration 2: [bold]evidence[/bold]"


def shown(paint, width=100):
    out = Console(width=width, record=True, force_terminal=False)
    paint(out)
    return out.export_text()


def summary(*alarms):
    row = {
        "reward_mean": 0.5, "accuracy_before": 0.3, "accuracy_after": 0.4, "greedy_accuracy_after": 0.5,
        "reward_model_mean_after": 0.625, "reward_model_accuracy_before": 0.7, "reward_model_accuracy_after": 0.75,
        "num_fresh": 512, "num_replayed": 51, "policy_version": 2, "reward_version": 2, "champion_version": 2, "seconds": 610.0,
    }  # fmt: skip
    return {
        "lineage": "l", "recipe": "r", "baseline_accuracy": 0.3, "baseline_greedy_accuracy": 0.2, "baseline_reward_model_mean": 0.4,
        "iterations": [{**row, "iteration": index + 1, "alarm": alarm} for index, alarm in enumerate(alarms)],
    }  # fmt: skip


def test_the_iterations_whose_alarm_stands_are_marked_in_the_table():
    text = shown(lambda out: out.print(summary_table(summary(None, ALARM, None))))
    rows = [line for line in text.splitlines() if line.strip()[:1].isdigit()]
    assert [("⚠" in line) for line in rows] == [False, False, True, False]
    assert ["0.62" in line for line in rows] == [False, True, True, True]
    assert "0.40" in rows[0]


def test_the_table_fits_eighty_columns():
    text = shown(lambda out: out.print(summary_table(summary(None, ALARM))), width=80)
    row = next(line for line in text.splitlines() if line.strip().startswith("2"))
    for value in ("2 ⚠", "0.30→0.40", "0.62", "0.70→0.75", "512+51", "610"):
        assert value in row


def test_the_alarm_is_told_in_full_while_it_stands_and_only_then():
    assert alarm_lines(summary(None, ALARM)) == [f"⚠ {ALARM}"]
    assert alarm_lines(summary(ALARM, None)) == []
    assert alarm_lines(summary()) == []
    assert alarm_lines({}) == []


def test_a_summary_from_before_there_was_an_alarm_is_still_shown():
    old = summary(None)
    del (
        old["baseline_reward_model_mean"],
        old["iterations"][0]["alarm"],
        old["iterations"][0]["reward_model_mean_after"],
    )
    text = shown(lambda out: out.print(summary_table(old)))
    assert "0.30→0.40" in text
    assert "⚠ " not in next(line for line in text.splitlines() if line.strip().startswith("1"))


ROWS = [(0, True, 0.75), (1, False, 0.9), (2, True, None), (3, None, 0.9), (4, True, 0.25), (5, False, 0.75)]


@pytest.fixture
def rewards(place):
    """A step's completions and rewards; gives the folder of the rewards."""
    key = {"group_id": "g", "prompt_id": "p"}
    completions = [
        {
            **key, "sample_index": index, "prompt_token_ids": [1], "completion_token_ids": [2], "sampler_logprobs": None,
            "finish_reason": "stop", "is_truncated": False, "text": f"text {index} [red]", "seed": index, "temperature": 1.0,
            "policy_digest": "d",
        }
        for index, _, _ in ROWS
    ]  # fmt: skip
    scored = [
        {
            **key, "sample_index": index, "reward": probability, "is_correct": correct, "step_rewards": None, "step_ends": None,
            "reward_model_reward": probability, "reward_model_status": "scored", "reward_model_reason": "",
        }
        for index, correct, probability in ROWS
    ]  # fmt: skip
    here = place.at(iteration=1, section="step-001")
    tables.publish(here, "completions", completions, Provenance(stage="completions", inputs={}))
    tables.publish(here, "rewards", scored, Provenance(stage="rewards", inputs={}), sources=("reward_model",))
    return here.folder("rewards")


def order(text):
    return [int(number) for number in re.findall(r"text (\d)", text)]


@pytest.mark.parametrize("table", ["rewards", "completions"])
def test_disagreements_come_largest_first_with_what_both_say(rewards, table):
    path = rewards.with_name(table)
    text = shown(lambda out: show_table(out, path, order="disagree", num=10))
    assert order(text) == [
        1,
        4,
        5,
        0,
    ]  # 0.9, then 0.75 twice by sample, then 0.25; what one side left unscored is not there
    assert "verifier: wrong, reward model: 0.900, apart by 0.900" in text
    assert "verifier: right, reward model: 0.250, apart by 0.750" in text
    assert "[red]" in text


def test_the_other_orders_are_as_before(rewards):
    assert order(shown(lambda out: show_table(out, rewards, order="best", num=2))) == [1, 3]
    assert order(shown(lambda out: show_table(out, rewards, order="worst", num=1))) == [4]
    assert order(shown(lambda out: show_table(out, rewards, order="stored", num=10))) == [0, 1, 2, 3, 4, 5]


def test_a_table_without_verdicts_names_the_option_that_does_not_fit(place):
    tables.publish(place, "evaluation", [], Provenance(stage="evaluation", inputs={}))
    with pytest.raises(CorruptArtifact, match="leave out --disagree"):
        show_table(Console(), place.folder("evaluation"), order="disagree", num=1)
