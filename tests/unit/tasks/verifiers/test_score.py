"""The scoring stage on a store of its own: step columns, and which tables are found again."""

import pytest

from storage import checkpoints, tables
from storage.errors import ProvenanceMismatch
from storage.manifest import Provenance, read_manifest
from storage.schemas import schema_of
from tasks.policy.characters import build_tokenizer
from tasks.reward.config import RewardModelConfig
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.score import check_verifiers, score
from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.verdict import CannotStart

OUTCOME = ScoringConfig.model_validate({"correctness": "exact", "verifiers": [{"kind": "exact"}]})
PROCESS = ScoringConfig.model_validate(
    {
        "correctness": "exact",
        "process": "steps",
        "verifiers": [{"kind": "exact"}, {"kind": "arithmetic_steps"}],
        "max_failed_share": 0,
    }
)
REWARD = RewardModelConfig.model_validate(
    {"training": {"optimiser": {"learning_rate": 1e-3}}, "num_initial_prompts": 1}
)
PROMPT = {"group_id": "g", "prompt_id": "p", "prompt": "5+8=", "answer": "13", "metadata": "{}", "is_chat": False}
TEXTS = ("<think>5+8=13</think><answer>13</answer>", "<think>5+8=14</think><answer>14", "")


@pytest.fixture
def given(place):
    """(policy, selection, completions) of three samples: finished, cut by the limit, nothing but an end-of-sequence."""
    tokenizer = build_tokenizer()
    made = Provenance(stage="test", inputs={})
    policy = checkpoints.publish(place, "policy", tokenizer.save_pretrained, made)
    keys = {"prompt_key": "k", "split": "train", "prompt_token_ids": [1]}
    selection = tables.publish(place, "selection", [PROMPT | keys], made)
    rows = []
    for index, text in enumerate(TEXTS):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] * (index != 1)
        known = {
            "group_id": "g",
            "prompt_id": "p",
            "sample_index": index,
            "prompt_token_ids": [1],
            "completion_token_ids": ids,
            "is_truncated": index == 1,
            "text": text,
        }
        rows.append(dict.fromkeys(schema_of("completions").names) | known)
    yield policy, selection, tables.publish(place, "completions", rows, made)
    residents.clear()


def run(place, given, config, **changed):
    policy, selection, completions = given
    return score.fn(place, selection, completions, changed.get("policy", policy), None, config, REWARD, MachineConfig())


def test_the_rewards_table_says_where_each_step_ends_and_what_it_earned(place, given):
    ref = run(place, given, PROCESS)
    rows = tables.read(ref)
    # <think> 5 + 8 = 1 3 </think> are tokens 0 to 7; <answer> 1 3 </answer> <eos> 8 to 12; without the last two 8 to 10
    assert [row["step_ends"] for row in rows] == [[7, 12], [7, 10], [0]]
    assert [row["step_rewards"] for row in rows] == [[1.0, 1.0], [0.0, 0.0], [0.0]]
    assert [row["steps_reward"] for row in rows] == [1.0, 0.0, 0.0]
    metrics = tables.metrics_of(ref)
    assert (metrics["num_steps_mean"], metrics["step_reward_mean"]) == (pytest.approx(5 / 3), pytest.approx(0.4))
    assert (metrics["num_rows_without_steps"], metrics["num_merged_steps"]) == (0, 0)


def test_with_a_process_the_policy_belongs_to_what_the_table_is_made_from(place, given):
    ref = run(place, given, PROCESS)
    assert run(place, given, PROCESS) == ref
    with pytest.raises(ProvenanceMismatch, match="policy"):
        run(place, given, PROCESS, policy=given[0].model_copy(update={"digest": "0" * 64}))


def test_without_a_process_the_policy_is_not_read_and_the_provenance_is_that_of_before(place, given):
    nowhere = given[0].model_copy(update={"uri": "nowhere"})
    ref = run(place, given, OUTCOME, policy=nowhere)
    assert [row["step_ends"] for row in tables.read(ref)] == [None, None, None]
    provenance = read_manifest(place.folder("rewards")).provenance
    assert provenance.inputs == {"selection": given[1].digest, "completions": given[2].digest}
    assert provenance.config.keys() == {
        "verifiers",
        "correctness",
        "reward_model_weight",
        "num_workers",
        "row_deadline_seconds",
        "max_failed_share",
        "max_tokens",
    }


def test_the_table_counts_the_processes_that_were_replaced(place, given):
    assert tables.metrics_of(run(place, given, OUTCOME))["num_replaced_verifier_processes"] == 0


def test_a_source_without_a_deadline_of_its_own_is_recorded_as_before_there_was_one():
    assert '"deadline_seconds"' not in OUTCOME.model_dump_json()
    assert "deadline_seconds" not in OUTCOME.model_dump(mode="json")["verifiers"][0]
    own = ScoringConfig.model_validate(
        {**OUTCOME.model_dump(), "verifiers": [{"kind": "exact", "deadline_seconds": 9}]}
    )
    assert own.model_dump(mode="json")["verifiers"][0]["deadline_seconds"] == 9


def test_a_verifier_that_lacks_what_it_needs_is_refused_before_anything_is_scored():
    lacking = {"kind": "function", "function": "no_such_module:reward"}
    config = ScoringConfig.model_validate({"correctness": "function", "verifiers": [lacking]})
    with pytest.raises(CannotStart, match="No module named 'no_such_module'"):
        check_verifiers.fn(config)


def test_the_processes_that_were_checked_are_those_that_score(place, given):
    check_verifiers.fn(OUTCOME)
    pool = residents.get("verifiers", OUTCOME.model_dump_json(), lambda: None)
    run(place, given, OUTCOME)
    assert residents.get("verifiers", OUTCOME.model_dump_json(), lambda: None) is pool
    assert pool is not None
