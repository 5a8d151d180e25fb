"""Prompts: read, written down, de-duplicated, split, chosen."""

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from tasks.curriculum.config import PromptFormat, PromptSource
from tasks.curriculum.ingest import ingest
from tasks.curriculum.keys import may_be_demonstrated, prompt_key
from tasks.curriculum.raw import RawPrompt
from tasks.curriculum.selection import select, select_heldout
from tasks.curriculum.sources import load_prompts

ROOT = Path(__file__).parents[4]


def source(**settings):
    return TypeAdapter(PromptSource).validate_python(settings)


def load(**settings):
    return load_prompts(source(**settings), seed=1)


ROWS = [{"prompt": "1+1", "answer": "2", "level": 3}, {"prompt": "정답?", "answer": 4}]


def write_jsonl(path, rows):
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")


def test_jsonl_rows_keep_their_other_columns(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    loaded = load(kind="jsonl", path=str(tmp_path / "a.jsonl"))
    assert loaded.prompts == [RawPrompt("1+1", "2", {"level": 3}), RawPrompt("정답?", "4", {})]


def test_files_of_a_folder_are_read_in_sorted_order_whatever_their_age(tmp_path):
    for name in ("b", "a", "c10", "c9"):
        write_jsonl(tmp_path / f"{name}.jsonl", [{"prompt": name, "answer": "x"}])
    (tmp_path / "notes.txt").write_text("not a prompt")
    loaded = load(kind="jsonl", path=str(tmp_path))
    assert [each.prompt for each in loaded.prompts] == ["a", "b", "c10", "c9"]
    assert loaded.files == sorted(loaded.files)


def test_parquet_and_datasets_folders_give_the_same_prompts(tmp_path):
    rows = [{"q": "1+1", "a": "2"}, {"q": "2+2", "a": "4"}]
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "parquet" / "x.parquet")
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(tmp_path / "dict")
    columns = {"prompt_column": "q", "answer_column": "a"}
    expected = [RawPrompt("1+1", "2", {}), RawPrompt("2+2", "4", {})]
    assert load(kind="parquet", path=str(tmp_path / "parquet"), **columns).prompts == expected
    for name in ("one", "dict"):
        assert load(kind="datasets", name=str(tmp_path / name), **columns).prompts == expected


def test_chat_messages_are_prompts(tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": messages, "answer": "x"}])
    assert load(kind="jsonl", path=str(tmp_path / "a.jsonl")).prompts[0].prompt == messages


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "holds no prompts"),
        (['{"prompt": "x"}'], r"no column 'answer'; it has \['prompt'\]"),
        (['{"prompt": "x", "answer": "1"}', '{"prompt": "y", "answer": null}'], "row 1 .* has no 'answer'"),
        (['{"prompt": "x", "answer": ""}'], "row 0 .* has no 'answer'"),
        (['{"prompt": "x", "answer": "1"}', "not json"], "a.jsonl:2 is not JSON"),
        (["[1]"], "a.jsonl:1 is a list"),
        (['{"prompt": "  ", "answer": "1"}'], "neither text nor a list of messages"),
        (['{"prompt": [{"role": "user"}], "answer": "1"}'], "neither text nor a list of messages"),
        (['{"prompt": "x", "answer": [1]}'], "'answer' is list"),
    ],
)
def test_malformed_prompts_name_the_place(tmp_path, lines, message):
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=message):
        load(kind="jsonl", path=str(tmp_path / "a.jsonl"))


def test_a_missing_file_and_an_unknown_task_name_the_setting(tmp_path):
    with pytest.raises(ValueError, match=r"prompts.source.path"):
        load(kind="jsonl", path=str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="no_such_task"):
        load(kind="reasoning_gym", task="no_such_task", num_prompts=2)


def test_reasoning_gym_prompts_are_seeded_and_keep_their_entry():
    settings = {"kind": "reasoning_gym", "task": "chain_sum", "num_prompts": 3, "parameters": {"max_terms": 3}}
    first, again = load(**settings), load(**settings)
    assert first == again
    assert first.prompts[0].metadata["entry"]["answer"] == first.prompts[0].answer
    assert load_prompts(source(**settings), seed=2) != first


def test_arithmetic_prompts_are_distinct_and_right():
    loaded = load(kind="arithmetic", num_prompts=500, min_terms=3, max_terms=5)
    assert len({each.prompt for each in loaded.prompts}) == 500
    for each in loaded.prompts:
        assert str(eval(each.prompt.removesuffix("="))) == each.answer
    with pytest.raises(ValueError, match="distinct problems"):
        load(kind="arithmetic", num_prompts=500, min_terms=2, max_terms=2)


def prepare(raw, num_heldout=1, limit=50, **style):
    return ingest(
        raw,
        PromptFormat(**style),
        lambda text, is_chat: list(range(len(text))),
        num_heldout=num_heldout,
        max_prompt_tokens=limit,
    )


def raw(*texts, answer="1"):
    return [RawPrompt(text, answer, {}) for text in texts]


def test_prompts_that_differ_only_by_spaces_or_unicode_form_are_one():
    nfd = unicodedata.normalize("NFD", "정답")
    rows, metrics = prepare(raw("정답", f"  {nfd}\n", "a\r\nb", "a\nb", "c"))
    assert [row["prompt"] for row in rows] == ["정답", "a\r\nb", "c"]
    assert metrics["num_duplicates"] == 2


def test_a_prompt_with_two_answers_is_dropped_and_counted():
    rows, metrics = prepare([*raw("a", answer="1"), *raw("a", answer="2"), *raw("b", "c")])
    assert [row["prompt"] for row in rows] == ["b", "c"]
    assert metrics["num_conflicting"] == 1


def test_long_prompts_are_dropped_and_counted():
    rows, metrics = prepare(raw("a", "b", "x" * 51, "y" * 50))
    assert len(rows) == 3
    assert metrics["num_too_long"] == 1


def test_too_few_prompts_say_so():
    with pytest.raises(ValueError, match=r"1 usable prompts .* beside 1 held out"):
        prepare(raw("a"))


def heldout(rows):
    return {row["prompt_key"] for row in rows if row["split"] == "heldout"}


def test_the_split_is_by_prompt_and_the_same_in_any_order_and_process():
    texts = [f"question {index}" for index in range(200)]
    rows, _ = prepare(raw(*texts), num_heldout=20)
    backwards, _ = prepare(raw(*texts[::-1]), num_heldout=20)
    assert len(heldout(rows)) == 20
    assert heldout(rows) == heldout(backwards)
    assert heldout(rows).isdisjoint(row["prompt_key"] for row in rows if row["split"] == "train")
    code = "from tasks.curriculum.keys import prompt_key; print(prompt_key('question 7'))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    assert printed == prompt_key("question 7")


def test_held_out_prompts_of_a_large_set_are_never_demonstrated():
    rows, _ = prepare(raw(*(f"q{index}" for index in range(4000))), num_heldout=250)
    assert not any(may_be_demonstrated(key) for key in heldout(rows))
    allowed = sum(may_be_demonstrated(row["prompt_key"]) for row in rows)
    assert 0.84 < allowed / 4000 < 0.91


def test_a_template_a_system_message_and_a_chat_are_written_down():
    rows, _ = prepare(raw("1+1", "2"), limit=500, style="chat", system="be brief", template="Q: {prompt}")
    assert json.loads(rows[0]["prompt"]) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "Q: 1+1"},
    ]
    assert rows[0]["is_chat"]
    rows, _ = prepare(raw("1+1", "2"), template="Q: {prompt}")
    assert (rows[0]["prompt"], rows[0]["is_chat"]) == ("Q: 1+1", False)


PROMPTS = [
    {"prompt_id": f"p{index}", "split": "heldout" if index >= 7 else "train", "prompt": str(index)}
    for index in range(10)
]


def chosen(step, num=3, seed=1, rows=PROMPTS):
    return select(rows, num_prompts=num, seed=seed, step_index=step)


def test_every_training_prompt_comes_once_before_any_comes_again():
    walked = [row["prompt_id"] for step in range(7) for row in chosen(step)]
    for epoch in range(3):
        assert sorted(walked[epoch * 7 : epoch * 7 + 7]) == [f"p{index}" for index in range(7)]
    assert walked[:7] != walked[7:14]


def test_the_choice_depends_on_the_seed_and_not_on_the_order_of_rows():
    assert chosen(1) == chosen(1, rows=PROMPTS[::-1])
    assert [row["prompt_id"] for row in chosen(0, num=7)] != [row["prompt_id"] for row in chosen(0, num=7, seed=2)]


def test_groups_are_distinct_also_when_a_prompt_comes_twice_in_a_step():
    groups = [row["group_id"] for step in range(3) for row in chosen(step, num=10)]
    assert len(set(groups)) == 30


def test_held_out_prompts_form_the_same_groups_every_time():
    assert [row["group_id"] for row in select_heldout(PROMPTS[::-1])] == ["heldout-p7", "heldout-p8", "heldout-p9"]
