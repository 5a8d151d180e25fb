"""Which steps get a label, what is continued for them, and what the label is."""

import pytest

from tasks.reward.step_continuations import continuation_items, continuation_requests
from tasks.reward.step_kinds import StepsConfig
from tasks.reward.step_labels import estimate, step_label_rows
from tasks.reward.step_plan import plan_steps, spaced

PROMPTS = {
    "p1": {"prompt_id": "p1", "prompt": "ab=", "answer": "7", "metadata": '{"level": 2}'},
    "p2": {"prompt_id": "p2", "prompt": "cd=", "answer": "8", "metadata": "{}"},
}
KEYS = {"p1": "key1", "p2": "key2"}


def by_character(ids):
    return lambda count: count


def completion(text, group="g1", index=0, ended=True, prompt="p1", **changes):
    """One token per character, and an end-of-sequence id 2 when it ended by itself."""
    return {
        "group_id": group,
        "prompt_id": prompt,
        "sample_index": index,
        "prompt_token_ids": [1, 50],
        "completion_token_ids": [ord(each) for each in text] + [2] * ended,
        "text": text,
        "finish_reason": "stop" if ended else "length",
        "is_truncated": not ended,
        **changes,
    }


def config(**changes):
    split = {"kind": "separator", "separators": [","]}
    return StepsConfig.model_validate({"kind": "steps", "split": split, **changes})


def reward(group, index, is_correct):
    return {"group_id": group, "sample_index": index, "is_correct": is_correct}


def plan(*completions, **changes):
    return plan_steps(list(completions), config(**changes), by_character, seed=3)


def test_every_step_but_the_last_has_a_prefix_of_the_sampled_ids():
    found = plan(completion("a,b,c"))
    assert [each.ends for each in found.traced] == [(1, 3, 5)]  # the last step ends with the end-of-sequence id
    assert [each.prefix_token_ids for each in found.prefixes.values()] == [(97, 44), (97, 44, 98, 44)]
    assert {each.prompt_token_ids for each in found.prefixes.values()} == {(1, 50)}
    assert found.traced[0].prefix_ids == (*found.prefixes, None)


def test_a_completion_of_one_step_needs_no_continuation():
    found = plan(completion("abc"))
    assert found.prefixes == {}
    assert found.traced[0].prefix_ids == (None,)


def test_equal_prefixes_of_one_group_are_continued_once_those_of_two_groups_twice():
    found = plan(completion("a,b,c", index=0), completion("a,b,d", index=1), completion("a,x", "g2", prompt="p1"))
    assert found.metrics["num_prefixes"] == len(found.prefixes) == 3
    assert found.metrics["num_shared_prefixes"] == 2
    assert found.traced[0].prefix_ids[:2] == found.traced[1].prefix_ids[:2]
    assert [each.group_id for each in found.prefixes.values()] == ["g1", "g1", "g2"]


def test_equal_completions_are_drawn_once_and_those_without_steps_never():
    rows = [
        completion("a,b", index=0),
        completion("a,b", index=1),
        completion("", index=2),
        completion("", index=3, ended=False),
        completion("a", index=4, finish_reason="abort"),
    ]
    found = plan(*rows)
    assert [each.completion["sample_index"] for each in found.traced] == [0]
    assert (found.metrics["num_completions"], found.metrics["num_without_steps"]) == (1, 3)


def test_the_completions_of_a_group_are_drawn_by_hash_not_by_order():
    rows = [completion(f"{index},b", index=index) for index in range(10)]
    drawn = [each.completion["sample_index"] for each in plan(*rows, completions_per_group=3).traced]
    again = [each.completion["sample_index"] for each in plan(*rows[::-1], completions_per_group=3).traced]
    assert drawn == again == sorted(drawn)
    assert len(drawn) == 3
    others = [plan_steps(rows, config(completions_per_group=3), by_character, seed=seed) for seed in range(8)]
    assert len({tuple(each.completion["sample_index"] for each in other.traced) for other in others}) > 1


def test_the_groups_that_get_labels_are_drawn_by_hash_not_by_order():
    rows = [completion("a,b", f"g{index}") for index in range(10)]
    drawn = [each.completion["group_id"] for each in plan(*rows, max_groups=3).traced]
    assert drawn == [each.completion["group_id"] for each in plan(*rows[::-1], max_groups=3).traced]
    assert len(drawn) == 3
    others = [plan_steps(rows, config(max_groups=3), by_character, seed=seed) for seed in range(8)]
    assert len({tuple(each.completion["group_id"] for each in other.traced) for other in others}) > 1


@pytest.mark.parametrize(
    ("num_steps", "most", "expected"),
    [
        (5, 8, [0, 1, 2, 3, 4]),
        (5, 5, [0, 1, 2, 3, 4]),
        (5, 1, [4]),
        (5, 2, [0, 4]),
        (5, 3, [0, 2, 4]),
        (6, 3, [0, 3, 5]),  # 2.5 is rounded up
        (10, 4, [0, 3, 6, 9]),
        (0, 3, []),
    ],
)
def test_chosen_steps_are_evenly_spaced_and_hold_the_last(num_steps, most, expected):
    assert spaced(list(range(num_steps)), most) == expected


def test_no_budget_chooses_a_step_twice():
    for num_steps in range(1, 40):
        for most in range(1, num_steps + 1):
            found = spaced(list(range(num_steps)), most)
            assert len(set(found)) == most
            assert found[-1] == num_steps - 1
    with pytest.raises(ValueError, match="0 steps can not be chosen"):
        spaced([1], 0)


def test_tables_of_different_runs_are_refused():
    with pytest.raises(ValueError, match="share their"):
        plan(completion("a"), completion("b"))
    found = plan(completion("a,b"))
    with pytest.raises(ValueError, match="sample 0 has no reward"):
        step_label_rows(found, [reward("g1", 1, True)], [], KEYS, config(), origin_iteration=1)
    with pytest.raises(ValueError, match="other belongs to no prefix"):
        step_label_rows(found, [reward("g1", 0, True)], [reward("other", 0, True)], KEYS, config(), origin_iteration=1)


def continued(found, *verdicts):
    """The verdicts on the continuations of each prefix, in order."""
    return [
        reward(prefix, index, verdict)
        for prefix, given in zip(found.prefixes, verdicts, strict=True)
        for index, verdict in enumerate(given)
    ]


def test_a_soft_label_is_the_share_of_scored_continuations_that_end_right_and_the_last_step_is_the_completions_own():
    found = plan(completion("a,b,c"))
    verdicts = continued(found, [True, False, False, True], [False, None, True, None])
    rows, metrics = step_label_rows(found, [reward("g1", 0, False)], verdicts, KEYS, config(), origin_iteration=4)
    assert rows[0]["step_ends"] == [1, 3, 5]
    assert rows[0]["step_labels"] == [0.5, 0.5, 0.0]  # of the second step's four continuations two were scored
    assert (rows[0]["num_continuations"], rows[0]["origin_iteration"]) == (6, 4)
    assert (rows[0]["prompt_key"], rows[0]["completion_token_ids"][-1]) == ("key1", 2)
    assert (metrics["num_continuations"], metrics["num_continuations_unscored"]) == (8, 2)
    assert metrics["share_unscored"] == 0.25
    assert (metrics["num_steps_labelled"], metrics["num_steps_without_label"]) == (3, 0)
    assert metrics["label_mean"] == pytest.approx(1 / 3)


def test_a_hard_label_is_1_when_any_continuation_ends_right():
    found = plan(completion("a,b,c"))
    verdicts = continued(found, [False, True, False], [False, False, None])
    rows, _ = step_label_rows(found, [reward("g1", 0, True)], verdicts, KEYS, config(labels="hard"), origin_iteration=0)
    assert rows[0]["step_labels"] == [1.0, 0.0, 1.0]


def test_a_step_without_a_scored_continuation_has_no_label_and_a_completion_without_one_no_row():
    found = plan(completion("a,b,c"), completion("x,y", index=1))
    verdicts = continued(found, [None, None], [True, False], [])
    rewards = [reward("g1", 0, None), reward("g1", 1, None)]
    rows, metrics = step_label_rows(found, rewards, verdicts, KEYS, config(), origin_iteration=0)
    assert [(row["step_ends"], row["step_labels"]) for row in rows] == [([3], [0.5])]
    assert (metrics["num_rows"], metrics["num_steps_labelled"], metrics["num_steps_without_label"]) == (1, 1, 4)


def test_label_ids_differ_by_completion_and_by_iteration():
    found = plan(completion("a", index=0), completion("b", index=1))
    rewards = [reward("g1", 0, True), reward("g1", 1, False)]
    ids = [
        row["label_id"]
        for iteration in (0, 1)
        for row in step_label_rows(found, rewards, [], KEYS, config(), origin_iteration=iteration)[0]
    ]
    assert len(set(ids)) == 4


def test_nothing_is_said_of_the_share_of_nothing():
    _, metrics = step_label_rows(plan(), [], [], KEYS, config(), origin_iteration=0)
    assert "share_unscored" not in metrics
    assert "label_mean" not in metrics
    assert metrics["num_steps_labelled"] == 0
    assert estimate([], config()) is None


def test_a_request_holds_prompt_and_prefix_and_what_is_left_of_the_budget():
    found = plan(completion("a,b,c"))
    first, second = continuation_requests(found, PROMPTS, num_samples=2, max_new_tokens=6, seed=9)
    assert second.prompt_token_ids == (1, 50, 97, 44, 98, 44)
    assert (first.max_new_tokens, second.max_new_tokens) == (4, 2)
    assert (first.answer, first.prompt_id) == ("7", "p1")
    assert len({*first.seeds, *second.seeds}) == 4
    assert [each.limit(100) for each in (first, second)] == [4, 2]
    assert first.limit(3) == 3


def test_the_seeds_of_a_prefix_do_not_depend_on_the_others_but_on_the_run():
    both = continuation_requests(plan(completion("a,b,c")), PROMPTS, num_samples=2, max_new_tokens=9, seed=9)
    alone = continuation_requests(plan(completion("a,x")), PROMPTS, num_samples=2, max_new_tokens=9, seed=9)
    other = continuation_requests(plan(completion("a,x")), PROMPTS, num_samples=2, max_new_tokens=9, seed=10)
    assert alone[0] == both[0]
    assert set(alone[0].seeds).isdisjoint(other[0].seeds)


def test_a_prefix_that_used_the_budget_up_is_not_continued():
    assert len(continuation_requests(plan(completion("a,b,c")), PROMPTS, num_samples=1, max_new_tokens=4, seed=0)) == 1


def test_the_verifier_sees_prefix_and_continuation_as_one_text():
    found = plan(completion("a,b"))
    (prefix,) = found.prefixes
    answer = {**completion("d", prefix, ended=False), "completion_token_ids": [100]}
    (item,) = continuation_items(found, [answer], PROMPTS, lambda ids: "".join(map(chr, ids)))
    assert (item.prompt, item.answer, item.completion) == ("ab=", "7", "a,d")
    assert item.metadata == {"level": 2}
    assert item.is_truncated
