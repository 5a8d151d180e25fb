"""reasoning-gym answers: which part of a completion is scored."""

import pytest

from tasks.verifiers.answer_kinds import ReasoningGymVerifier
from tasks.verifiers.reasoning import verify
from tasks.verifiers.totals import items_of
from tasks.verifiers.verdict import ScoreItem

ENTRY = {"question": "8 - 4 =", "answer": "4", "metadata": {"source_dataset": "chain_sum"}}
METADATA = {"task": "chain_sum", "entry": ENTRY}


def verdict(completion, *, tag="", is_truncated=False, metadata=METADATA):
    config = ReasoningGymVerifier(kind="reasoning_gym", answer_tag=tag)
    return verify(config, ScoreItem("8 - 4 =", "4", completion, metadata, is_truncated))


@pytest.mark.parametrize(
    ("completion", "reward"),
    [("4", 1.0), ("8 - 4 = 4.", 1.0), ("4 or 5", 0.0), ("no idea", 0.0), ("", 0.0), ("-5", 0.0), ("-4", 0.5)],
)
def test_the_last_number_of_a_finished_completion_is_its_answer(completion, reward):
    # "-4": chain_sum itself gives half for an answer that contains the right one
    assert verdict(completion).reward == pytest.approx(reward)


def test_a_number_at_which_the_limit_cut_is_no_answer():
    assert verdict("In this case, 8 '- 4", is_truncated=True).reward == 0.0
    assert verdict("<answer>4</answer> and then", tag="answer", is_truncated=True).reward == 1.0


def test_a_prompt_of_another_source_is_unscored():
    assert verdict("4", metadata={}).status == "unscored"


def test_the_verifier_is_told_what_was_cut():
    selection = [{"group_id": "g", "prompt": "p", "answer": "4", "metadata": "{}", "is_chat": False}]
    rows = [{"group_id": "g", "text": "4", "is_truncated": cut, "completion_token_ids": [4]} for cut in (True, False)]
    assert [item.is_truncated for item in items_of(rows, selection)] == [True, False]
