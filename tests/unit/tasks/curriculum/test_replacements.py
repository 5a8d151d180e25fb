"""Prompts in place of those that gave no signal."""

from tasks.curriculum.selection import select, select_replacements

PROMPTS = [{"prompt_id": f"p{index}", "split": "heldout" if index < 2 else "train"} for index in range(12)]


def replacements(taken, num_prompts=3, rows=PROMPTS, **changes):
    settings = {"seed": 5, "step_index": 1, "round_number": 1, **changes}
    return select_replacements(rows, taken, num_prompts=num_prompts, **settings)


def ids(selection):
    return [row["prompt_id"] for row in selection]


def test_none_was_drawn_by_the_step_before_and_none_is_held_out():
    taken = select(PROMPTS, num_prompts=4, seed=5, step_index=1)
    first = replacements(taken)
    second = replacements([*taken, *first], round_number=2)
    drawn = ids(taken) + ids(first) + ids(second)
    assert len(set(drawn)) == len(drawn) == 10
    assert not {"p0", "p1"} & set(drawn)


def test_groups_of_different_rounds_and_steps_have_different_ids():
    groups = [
        row["group_id"]
        for step in (0, 1)
        for round_number in (1, 2)
        for row in replacements([], 10, step_index=step, round_number=round_number)
    ]
    assert len(set(groups)) == 40


def test_the_order_depends_on_seed_step_and_round_but_not_on_the_order_of_rows():
    assert ids(replacements([], 10, rows=PROMPTS[::-1])) == ids(replacements([], 10))
    for change in ({"seed": 6}, {"step_index": 2}, {"round_number": 2}):
        assert ids(replacements([], 10, **change)) != ids(replacements([], 10))


def test_fewer_come_when_no_more_are_left():
    taken = replacements([], 8)
    assert len(replacements(taken, 5)) == 2
    assert replacements([*taken, *replacements(taken, 5)], 5) == []
