"""Step labels from files: what is read, and that a line which can not be read is named."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.curriculum.config import PromptFormat
from tasks.curriculum.keys import prompt_key
from tasks.policy.characters import build_tokenizer
from tasks.reward.step_file_rows import coding_of, file_label_rows
from tasks.reward.step_files import read_step_file
from tasks.reward.step_kinds import MathShepherdFile, Prm800kFile, ProcessBenchFile

CODING = coding_of(build_tokenizer())


def written(folder, *records):
    path = folder / "labels.jsonl"
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in records))
    return str(path)


def rated(text, rating):
    return {"text": text, "rating": rating, "flagged": False}


def alternatives(*completions, chosen=None, human=None):
    return {"completions": list(completions), "chosen_completion": chosen, "human_completion": human}


def prm800k(*steps, finish_reason="solution"):
    return {
        "question": {"problem": "1+1=", "ground_truth_answer": "2"},
        "label": {"steps": list(steps), "finish_reason": finish_reason},
    }


def prm800k_rows(folder, record, **changes):
    found = read_step_file(Prm800kFile(kind="prm800k", path=written(folder, record), **changes))
    return [(each.steps, each.labels, each.is_finished) for each in found]


def test_prm800k_gives_the_chosen_path_and_every_alternative_with_its_own_label(tmp_path):
    record = prm800k(
        alternatives(rated("one", 1), chosen=0),
        alternatives(rated("bad", -1), rated("good", 1), chosen=1),
        alternatives(rated("two\n\n# Answer\n\n2", 1), chosen=0),
    )
    assert prm800k_rows(tmp_path, record) == [
        (("one", "bad"), (None, 0.0), False),
        (("one", "good", "two\n\n# Answer\n\n2"), (1.0, 1.0, 1.0), True),
    ]


def test_prm800k_goes_on_with_the_step_that_people_wrote_which_has_no_label(tmp_path):
    human = {"text": "mine", "rating": None, "source": "human", "flagged": False}
    record = prm800k(alternatives(rated("bad", -1), human=human), alternatives(rated("two", 1), chosen=0))
    assert prm800k_rows(tmp_path, record) == [(("bad",), (0.0,), False), (("mine", "two"), (None, 1.0), False)]


def test_prm800k_ends_where_nothing_was_chosen(tmp_path):
    record = prm800k(
        alternatives(rated("one", 1), chosen=0),
        alternatives(rated("bad", -1), rated("other", 1)),
        finish_reason="found_error",
    )
    assert prm800k_rows(tmp_path, record) == [
        (("one", "bad"), (None, 0.0), False),
        (("one", "other"), (None, 1.0), False),
        (("one",), (1.0,), False),
    ]


@pytest.mark.parametrize(("neutral", "label"), [("right", 1.0), ("wrong", 0.0), ("left_out", None)])
def test_what_neutral_counts_as_is_a_setting(tmp_path, neutral, label):
    record = prm800k(alternatives(rated("so so", 0), chosen=0), alternatives(rated("good", 1), chosen=0))
    assert prm800k_rows(tmp_path, record, neutral=neutral) == [(("so so", "good"), (label, 1.0), False)]


def test_a_rating_of_null_is_no_label_and_a_broken_problem_no_solution(tmp_path):
    flagged = prm800k(alternatives(rated("odd", None), chosen=0), alternatives(rated("good", 1), chosen=0))
    assert prm800k_rows(tmp_path, flagged) == [(("odd", "good"), (None, 1.0), False)]
    broken = prm800k(alternatives(rated("good", 1), chosen=0), finish_reason="bad_problem")
    with pytest.raises(ValueError, match="holds no labelled step"):
        prm800k_rows(tmp_path, broken)


def test_completions_that_are_null_leave_the_human_step(tmp_path):
    step = {"completions": None, "chosen_completion": None, "human_completion": {"text": "mine", "rating": None}}
    found = prm800k_rows(tmp_path, prm800k(step, alternatives(rated("good", 1), chosen=0)))
    assert found == [(("mine", "good"), (None, 1.0), False)]


SHEPHERD = {
    "input": "How many? Step 1: 1+1=2 ки\nStep 2: 2+1=4 ки\nThe answer is: 4 ки",
    "label": "How many? Step 1: 1+1=2 +\nStep 2: 2+1=4 -\nThe answer is: 4 -",
    "task": "GSM8K",
}


def test_math_shepherd_gives_question_steps_and_signs(tmp_path):
    (found,) = read_step_file(MathShepherdFile(kind="math_shepherd", path=written(tmp_path, SHEPHERD)))
    assert found.prompt == "How many?"
    assert found.steps == ("Step 1: 1+1=2", "Step 2: 2+1=4", "The answer is: 4")
    assert found.labels == (1.0, 0.0, 0.0)
    assert found.is_finished


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"input": "How many? Step 1: 1"}, "no mark 'ки'"),
        ({"input": SHEPHERD["input"] + " and more"}, "goes on behind its last mark"),
        ({"label": SHEPHERD["label"].replace("=4 -", "=4 ?")}, r"\+ or - where input has mark 2"),
        ({"label": SHEPHERD["label"].replace("2+1", "2+2")}, r"\+ or - where input has mark 2"),
        ({"label": SHEPHERD["label"][:20]}, r"\+ or - where input has mark 1"),
        ({"input": SHEPHERD["input"][10:], "label": SHEPHERD["label"][10:]}, "no question before 'Step 1:'"),
        ({"input": None}, "'input' is NoneType, not str"),
    ],
)
def test_a_math_shepherd_line_whose_parts_do_not_fit_is_named(tmp_path, changes, fault):
    path = written(tmp_path, SHEPHERD, {**SHEPHERD, **changes})
    with pytest.raises(ValueError, match=rf"line 2 of .*labels\.jsonl: .*{fault}.*mend or remove the line"):
        read_step_file(MathShepherdFile(kind="math_shepherd", path=path))


@pytest.mark.parametrize(
    ("first", "labels"), [(-1, (1.0, 1.0, 1.0)), (0, (0.0, None, None)), (1, (1.0, 0.0, None)), (2, (1.0, 1.0, 0.0))]
)
def test_process_bench_knows_nothing_of_what_follows_the_first_wrong_step(tmp_path, first, labels):
    record = {"problem": "1+1=", "steps": ["a", "b", "c"], "label": first, "final_answer_correct": True}
    (found,) = read_step_file(ProcessBenchFile(kind="process_bench", path=written(tmp_path, record)))
    assert (found.steps, found.labels) == (("a", "b", "c"), labels)


FILES = [
    Prm800kFile(kind="prm800k", path="-"),
    MathShepherdFile(kind="math_shepherd", path="-"),
    ProcessBenchFile(kind="process_bench", path="-"),
]
GOOD = [
    prm800k(alternatives(rated("1+1=2", 1), chosen=0)),
    SHEPHERD,
    {"problem": "1+1=", "steps": ["1+1=2"], "label": -1},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "steps", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def spoilt(record, path, value):
    """The record with the value at a path of keys and positions replaced; as far as the path leads."""
    if not path or not isinstance(record, (dict, list)) or not record:
        return value
    keys = list(record) if isinstance(record, dict) else list(range(len(record)))
    key = keys[path[0] % len(keys)]
    copy = dict(record) if isinstance(record, dict) else list(record)
    copy[key] = spoilt(record[key], path[1:], value)
    return copy


@pytest.mark.parametrize(
    ("config", "good"), list(zip(FILES, GOOD, strict=True)), ids=lambda each: getattr(each, "kind", "")
)
@settings(max_examples=150, deadline=None)
@given(path=st.lists(st.integers(0, 5), max_size=6), value=JSON)
def test_whatever_stands_in_a_line_it_is_read_or_named_with_its_line(tmp_path_factory, config, good, path, value):
    folder = tmp_path_factory.mktemp("spoilt")
    file = written(folder, good, "", json.dumps(spoilt(good, path, value)))
    settled = config.model_copy(update={"path": file})
    try:
        found = read_step_file(settled)
    except ValueError as error:
        assert str(error).startswith(f"line 3 of {file}: ")  # noqa: PT017  # the other outcome is no error
    else:
        assert all(len(each.steps) == len(each.labels) and each.prompt.strip() for each in found)
        assert all(label in (None, 0.0, 1.0) for each in found for label in each.labels)


@pytest.mark.parametrize("text", ["{", "[1]", '"a"', "\xff", "[" * 5000])
@pytest.mark.parametrize("config", FILES, ids=lambda each: each.kind)
def test_a_line_that_is_no_object_is_named(tmp_path, config, text):
    path = tmp_path / "labels.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="line 1 of"):
        read_step_file(config.model_copy(update={"path": str(path)}))


def test_a_file_that_is_not_there_or_says_nothing_is_named_with_its_setting(tmp_path):
    with pytest.raises(ValueError, match=r"is not a file; set reward_model\.labels\.initial\.path"):
        read_step_file(ProcessBenchFile(kind="process_bench", path=str(tmp_path / "none.jsonl")))
    with pytest.raises(ValueError, match="holds no labelled step"):
        read_step_file(ProcessBenchFile(kind="process_bench", path=written(tmp_path)))


STEP = st.text("0123456789+-=", min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=6), data=st.data())
def test_every_step_ends_with_the_token_that_writes_its_last_character(tmp_path_factory, steps, data):
    first = data.draw(st.integers(-1, len(steps) - 1))
    record = {"problem": "1+1=", "steps": steps, "label": first}
    file = ProcessBenchFile(kind="process_bench", path=written(tmp_path_factory.mktemp("f"), record), joined_by="\n")
    rows, metrics = file_label_rows(
        read_step_file(file), file, PromptFormat(), CODING, heldout_keys=(), origin_iteration=0
    )
    (row,) = rows
    tokenizer = build_tokenizer()
    known = steps if first == -1 else steps[: first + 1]
    assert row["prompt_token_ids"] == tokenizer("1+1=")["input_ids"]
    assert row["completion_token_ids"][-1] == tokenizer.eos_token_id
    assert row["step_labels"] == [1.0] * (len(known) - (first >= 0)) + [0.0] * (first >= 0)
    begin = 0
    for number, (step, end) in enumerate(zip(known, row["step_ends"], strict=True)):
        is_last = number == len(steps) - 1
        text = tokenizer.decode(row["completion_token_ids"][begin : end + 1 - is_last])
        assert text == (step if is_last else step + "\n")
        begin = end + 1
    assert metrics["num_file_steps"] == len(known)
    assert metrics["num_file_merged_steps"] == 0


def rows_of(folder, *records, style=None, heldout=()):
    file = ProcessBenchFile(kind="process_bench", path=written(folder, *records))
    return file_label_rows(
        read_step_file(file), file, style or PromptFormat(), CODING, heldout_keys=heldout, origin_iteration=0
    )


def test_a_heldout_prompt_gives_no_row_however_it_is_written_down(tmp_path):
    records = [{"problem": problem, "steps": ["2"], "label": -1} for problem in ("1+1=", " 1+1=\n", "1+2=")]
    rows, metrics = rows_of(tmp_path, *records, heldout={prompt_key("1+1=")})
    assert [row["prompt_key"] for row in rows] == [prompt_key("1+2=")]
    assert (metrics["num_file_rows"], metrics["num_file_heldout"]) == (1, 2)


def test_the_prompt_is_written_down_as_the_recipe_writes_its_own(tmp_path):
    style = PromptFormat(template="({prompt})")
    rows, _ = rows_of(tmp_path, {"problem": "1+1=", "steps": ["2"], "label": -1}, style=style)
    assert rows[0]["prompt_key"] == prompt_key("(1+1=)")
    assert rows[0]["prompt_token_ids"] == CODING.encode_prompt("(1+1=)", False)


def test_equal_solutions_on_two_lines_are_two_rows(tmp_path):
    record = {"problem": "1+1=", "steps": ["2"], "label": -1}
    rows, _ = rows_of(tmp_path, record, record)
    assert len({row["label_id"] for row in rows}) == 2


@pytest.mark.parametrize("field", ["problem", "steps"])
def test_a_text_that_the_tokenizer_can_not_write_is_named(tmp_path, field):
    good = {"problem": "1+1=", "steps": ["2"], "label": -1}
    bad = {**good, "problem": "한"} if field == "problem" else {**good, "steps": ["\ud800"]}
    with pytest.raises(ValueError, match=r"line 2 of .*can not encode .*remove the line"):
        rows_of(tmp_path, good, bad)


@pytest.mark.parametrize(("first", "labels"), [(2, [1.0, 0.0]), (1, [0.0])])
def test_of_steps_that_share_their_last_token_the_smallest_known_label_counts(tmp_path, first, labels):
    """As it seems here, the second token writes the first two steps, the last one the other two."""
    plain = coding_of(build_tokenizer())
    coding = dataclasses.replace(plain, prefix_lengths=lambda ids: lambda count: 4 if count >= 2 else count)
    record = {"problem": "1", "steps": ["1", "2", "3", "4"], "label": first}
    file = ProcessBenchFile(kind="process_bench", path=written(tmp_path, record), joined_by=".")
    rows, metrics = file_label_rows(
        read_step_file(file), file, PromptFormat(), coding, heldout_keys=(), origin_iteration=0
    )
    assert metrics["num_file_merged_steps"] == 2
    assert rows[0]["step_ends"] == [1, 7][: len(labels)]
    assert rows[0]["step_labels"] == labels
