"""How sources add up to a reward."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.failures import check_failures
from tasks.verifiers.steps import at_positions
from tasks.verifiers.totals import combine, of_log_odds, reward_rows
from tasks.verifiers.verdict import failed, scored, timed_out, unscored

WEIGHTS = {"ok": 1.0, "shape": 0.1, "model": 0.0}


@pytest.mark.parametrize(("ok", "shape", "total"), [(1, 1, 1.1), (1, 0, 1.0), (0, 1, 0.1), (0, 0, 0.0)])
def test_a_right_answer_beats_every_shape(ok, shape, total):
    assert combine({"ok": scored(ok), "shape": scored(shape), "model": unscored("")}, WEIGHTS) == pytest.approx(total)


def test_a_source_that_failed_takes_the_reward_away():
    for broken in (failed("x"), timed_out("x")):
        assert combine({"ok": scored(1), "shape": broken, "model": scored(1)}, WEIGHTS) is None


def test_a_source_that_does_not_apply_is_left_out():
    assert combine({"ok": scored(1), "shape": unscored("x"), "model": scored(1)}, WEIGHTS) == 1.0


def test_no_source_means_no_reward_which_is_not_zero():
    assert combine({"ok": unscored("x"), "shape": unscored("x"), "model": scored(0.7)}, WEIGHTS) is None


def test_a_source_of_weight_zero_can_neither_give_nor_take():
    assert combine({"ok": scored(1), "shape": scored(0), "model": failed("x")}, WEIGHTS) == 1.0


CONFIG = ScoringConfig.model_validate(
    {
        "correctness": "exact",
        "reward_model_weight": 0.5,
        "verifiers": [{"kind": "exact"}, {"kind": "format", "weight": 0.1}],
    }
)


def rows(verdicts, scores):
    completions = [{"group_id": "g", "prompt_id": "p", "sample_index": index} for index in range(len(verdicts))]
    return reward_rows(completions, verdicts, scores and [of_log_odds(score) for score in scores], CONFIG)


def test_every_source_has_its_reward_status_and_reason():
    found, metrics = rows([[scored(1), scored(0, "why")], [unscored("gold"), scored(1)]], [0.0, math.log(3)])
    assert found[0]["reward"] == pytest.approx(1 + 0.5 * 0.5)
    assert found[1]["reward"] == pytest.approx(0.1 + 0.5 * 0.75)
    assert [row["is_correct"] for row in found] == [True, None]
    assert (found[0]["format_reward"], found[0]["format_reason"]) == (0.0, "why")
    assert (found[1]["exact_status"], found[1]["exact_reward"]) == ("unscored", None)
    assert (metrics["accuracy"], metrics["num_exact_unscored"], metrics["exact_mean"]) == (1.0, 1, 1.0)


def test_unscored_rows_leave_the_accuracy_alone():
    verdicts = [[unscored("x"), scored(0)]] * 2 + [[scored(1), scored(0)], [scored(0), scored(0)]]
    _, metrics = rows(verdicts, [0.0] * 4)
    assert metrics["accuracy"] == 0.5
    assert metrics["num_exact_unscored"] == 2


def test_what_nobody_scored_has_no_reward_and_leaves_the_mean():
    given = [scored(1), scored(0), unscored("x"), scored(1)]
    found, metrics = rows([[each, unscored("no tags")] for each in given], None)
    assert [row["reward"] for row in found] == [1.0, 0.0, None, 1.0]
    assert metrics["reward_mean"] == pytest.approx(2 / 3)
    assert (metrics["num_without_reward"], "format_mean" in metrics) == (1, False)
    values = [scored(0.5), failed("NaN"), failed("NaN"), scored(0.8), scored(0.6), scored(0.7)]
    _, metrics = rows([[each, scored(0)] for each in values], None)
    assert metrics["exact_mean"] == pytest.approx(0.65)
    assert metrics["num_exact_error"] == 2


def test_without_a_reward_model_its_column_is_unscored():
    found, _ = rows([[scored(1), scored(0)]], None)
    assert (found[0]["reward_model_status"], found[0]["reward"]) == ("unscored", 1.0)


def test_a_score_that_is_not_finite_is_an_error_and_an_extreme_one_is_not():
    found, metrics = rows([[scored(1), scored(0)]] * 3, [math.nan, 1e6, -1e6])
    assert [row["reward_model_status"] for row in found] == ["error", "scored", "scored"]
    assert [row["reward_model_reward"] for row in found[1:]] == pytest.approx([1.0, 0.0])
    assert found[0]["reward"] is None
    assert metrics["num_without_reward"] == 1


def test_rows_that_do_not_match_are_an_error():
    with pytest.raises(ValueError, match="do not match"):
        rows([[scored(1), scored(0)]], [0.0, 1.0])


def test_too_many_failures_name_the_source_and_the_setting():
    _, metrics = rows([[failed("x"), scored(0)]] * 2 + [[scored(1), scored(0)]] * 8, None)
    check_failures(metrics, 0.2)
    with pytest.raises(ValueError, match=r"exact: 2 of 10 rows.*max_failed_share"):
        check_failures(metrics, 0.19)


ROOT = Path(__file__).parents[4]
STEPS = {"kind": "arithmetic_steps"}
PROCESS = ScoringConfig.model_validate(
    {"correctness": "exact", "process": "steps", "verifiers": [{"kind": "exact"}, STEPS]}
)


def one_character_a_token(ids):
    return lambda num_tokens: num_tokens


def process_rows(verdicts, num_tokens, lengths=one_character_a_token):
    completions = [
        {"group_id": "g", "prompt_id": "p", "sample_index": index, "completion_token_ids": [7] * count}
        for index, count in enumerate(num_tokens)
    ]
    return reward_rows(completions, verdicts, None, PROCESS, lengths)


def test_the_process_verifiers_steps_fill_the_step_columns_in_tokens():
    found, metrics = process_rows(
        [
            [scored(1), scored(0.75, "", ((3, 1.0), (5, 0.0), (6, 1.0), (8, 1.0)))],
            [scored(0), scored(0.0, "", ((0, 0.0),))],
        ],
        [9, 1],
    )
    assert [row["step_ends"] for row in found] == [[2, 4, 5, 8], [0]]
    assert [row["step_rewards"] for row in found] == [[1.0, 0.0, 1.0, 1.0], [0.0]]
    assert [row["reward"] for row in found] == [1.0, 0.0]  # weight 0: supervised, not summed
    assert (metrics["num_steps_mean"], metrics["step_reward_mean"]) == (2.5, pytest.approx(0.6))
    assert (metrics["num_rows_without_steps"], metrics["num_merged_steps"]) == (0, 0)


def test_rows_that_the_process_verifier_did_not_score_have_no_steps_which_is_not_an_empty_list():
    two = scored(0.5, "", ((2, 1.0), (4, 0.0)))
    found, metrics = process_rows(
        [[scored(1, "", ((1, 1.0),)), other] for other in (unscored("x"), failed("x"), timed_out("x"), two, two)],
        [4, 4, 4, 4, 0],
    )
    assert [row["step_rewards"] for row in found] == [None, None, None, [1.0, 0.0], None]
    assert [row["step_ends"] for row in found] == [None, None, None, [1, 3], None]
    assert (metrics["num_rows_without_steps"], metrics["num_steps_mean"]) == (4, 2.0)


def test_steps_that_share_their_last_token_are_merged_and_counted_over_all_rows():
    steps = ((2, 1.0), (3, 0.0), (8, 1.0))
    found, metrics = process_rows(
        [[scored(1), scored(0.5, "", steps)]] * 2, [4, 4], lambda ids: lambda num_tokens: 4 * num_tokens
    )
    assert [(row["step_ends"], row["step_rewards"]) for row in found] == [([0, 3], [0.0, 1.0])] * 2
    assert metrics["num_merged_steps"] == 2


def test_the_prefix_lengths_are_those_of_the_rows_own_tokens():
    asked = []

    def lengths(ids):
        asked.append(list(ids))
        return lambda num_tokens: num_tokens

    process_rows([[scored(1), scored(1, "", ((1, 1.0),))]] * 2, [2, 3], lengths)
    assert asked == [[7, 7], [7, 7, 7]]


def test_without_any_steps_there_is_no_mean():
    _, metrics = process_rows([[scored(1), unscored("x")]], [4])
    assert metrics["num_rows_without_steps"] == 1
    assert {"num_steps_mean", "step_reward_mean"}.isdisjoint(metrics)


def test_a_process_without_prefix_lengths_is_refused():
    with pytest.raises(ValueError, match="process 'steps' gives steps, but nothing says which tokens"):
        process_rows([[scored(1), scored(1, "", ((1, 1.0),))]], [1], None)


BY_MODEL = PROCESS.model_copy(update={"process": "reward_model"})


def test_the_steps_of_a_process_reward_model_fill_the_step_columns_when_it_supervises_the_process():
    completions = [
        {"group_id": "g", "prompt_id": "p", "sample_index": index, "completion_token_ids": [3] * 5} for index in (0, 1)
    ]
    verdicts = [[scored(1), scored(1, steps=((4, 1.0),))]] * 2
    steps = [at_positions([1, 3], [0.25, 0.75], 5), None]
    model = [scored(0.25), unscored("no steps")]
    found, metrics = reward_rows(completions, verdicts, model, BY_MODEL, model_steps=steps)
    assert (found[0]["step_ends"], found[0]["step_rewards"]) == ([1, 4], [0.25, 0.75])
    assert (found[1]["step_ends"], found[1]["step_rewards"]) == (None, None)
    assert [row["reward_model_reward"] for row in found] == [0.25, None]
    assert (metrics["num_rows_without_steps"], metrics["step_reward_mean"]) == (1, 0.5)
    with pytest.raises(ValueError, match="the last step ends at token 6, the completion at token 4"):
        reward_rows(completions, verdicts, model, BY_MODEL, model_steps=[at_positions([6], [1.0], 7), None])
    with pytest.raises(ValueError, match="do not match"):
        reward_rows(completions, verdicts, model, BY_MODEL, model_steps=steps[:1])


def test_a_process_reward_model_that_only_records_leaves_the_steps_to_the_verifier():
    completions = [{"group_id": "g", "prompt_id": "p", "sample_index": 0, "completion_token_ids": [3] * 5}]
    verdicts = [[scored(1), scored(1, steps=((4, 1.0),))]]
    steps = [at_positions([1, 3], [0.25, 0.75], 5)]
    found, _ = reward_rows(completions, verdicts, [scored(0.25)], PROCESS, one_character_a_token, steps)
    assert (found[0]["step_ends"], found[0]["step_rewards"]) == ([4], [1.0])
    assert found[0]["reward_model_reward"] == 0.25


def test_before_there_is_a_process_reward_model_no_row_has_steps():
    completions = [{"group_id": "g", "prompt_id": "p", "sample_index": 0, "completion_token_ids": [3] * 5}]
    found, metrics = reward_rows(completions, [[scored(1), scored(1, steps=((4, 1.0),))]], None, BY_MODEL)
    assert (found[0]["step_ends"], found[0]["reward_model_status"]) == (None, "unscored")
    assert metrics["num_rows_without_steps"] == 1


def test_without_a_process_the_tables_settings_and_metrics_are_those_of_before():
    found, metrics = rows([[scored(1), scored(0)]], None)
    assert (found[0]["step_rewards"], found[0]["step_ends"]) == (None, None)
    assert not [name for name in metrics if "step" in name]
    assert "process" not in CONFIG.model_dump(mode="json")
    assert "process" not in CONFIG.model_dump_json()
    assert PROCESS.model_dump(mode="json")["process"] == "steps"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"process": "exact"}, r"process 'exact' gives no steps; name steps, or leave process out"),
        ({"process": "x"}, r"process 'x' names no verifier; there are \['exact', 'steps'\]; name steps"),
        (
            {"process": "exact", "verifiers": [{"kind": "exact"}]},
            r'gives no steps; add \{ kind = "arithmetic_steps" \}',
        ),
        ({"verifiers": [{"kind": "exact"}, {**STEPS, "split": {"kind": "positions"}}]}, "does not match any of"),
        ({"verifiers": [{"kind": "exact"}, {**STEPS, "split": {"kind": "newline", "tag": "b"}}]}, "Extra inputs"),
        ({"verifiers": [{"kind": "exact"}, {**STEPS, "split": {"kind": "tag", "tag": "<b>"}}]}, "tag.tag"),
        (
            {"verifiers": [{"kind": "exact"}, {**STEPS, "split": {"kind": "separator", "separators": [""]}}]},
            "at least 1",
        ),
        ({"verifiers": [{"kind": "exact"}, {**STEPS, "split": {"kind": "separator", "separators": []}}]}, "at least 1"),
        ({"verifiers": [{"kind": "exact"}, {**STEPS, "answer_tag": ""}]}, "at least 1"),
        ({"verifiers": [{"kind": "exact"}, {**STEPS, "name": "num_steps"}]}, "are taken"),
    ],
)
def test_settings_that_can_not_work_are_refused_with_the_cure(settings, said):
    good = {"correctness": "exact", "process": "steps", "verifiers": [{"kind": "exact"}, STEPS]}
    with pytest.raises(ValidationError, match=said):
        ScoringConfig.model_validate({**good, **settings})


def test_the_weights_are_those_of_the_sources_that_count():
    assert CONFIG.weights == {"exact": 1.0, "format": 0.1, "reward_model": 0.5}
    assert PROCESS.weights == {"exact": 1.0}
    negative = ScoringConfig.model_validate(
        {"correctness": "exact", "verifiers": [{"kind": "exact", "weight": -1}], "reward_model_weight": 0}
    )
    assert negative.weights == {"exact": -1.0}


def test_scoring_settings_parse_without_torch():
    code = (
        "import sys; from tasks.verifiers.config import ScoringConfig; "
        f"ScoringConfig.model_validate({PROCESS.model_dump(mode='json')!r}); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
