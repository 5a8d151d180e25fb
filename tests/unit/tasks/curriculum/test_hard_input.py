"""Prompts as real files spell them."""

import json
import re

import pytest

from tasks.curriculum.config import DatasetsPrompts, JsonlPrompts, PromptFormat, ReasoningGymPrompts
from tasks.curriculum.ingest import ingest
from tasks.curriculum.raw import RawPrompt
from tasks.curriculum.sources import load_prompts


def read(tmp_path, content):
    (tmp_path / "a.jsonl").write_bytes(content)
    return load_prompts(JsonlPrompts(kind="jsonl", path=str(tmp_path / "a.jsonl")), seed=1).prompts


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x7f"])
def test_a_line_of_json_ends_at_a_line_feed_only(tmp_path, mark):
    row = json.dumps({"prompt": f"first{mark}second", "answer": "1"}, ensure_ascii=False)
    assert [each.prompt for each in read(tmp_path, f"{row}\r\n{row}\n".encode())] == [f"first{mark}second"] * 2


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    assert read(tmp_path, b'\xef\xbb\xbf{"prompt": "x", "answer": "1"}')[0].prompt == "x"


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"a\.jsonl is not UTF-8"):
        read(tmp_path, '{"prompt": "정답", "answer": "1"}'.encode("euc-kr"))


@pytest.mark.parametrize("answer", ["NaN", '"  "'])
def test_an_answer_that_is_blank_or_not_a_number_is_missing(tmp_path, answer):
    with pytest.raises(ValueError, match=r"row 0 .* has no 'answer'"):
        read(tmp_path, f'{{"prompt": "x", "answer": {answer}}}'.encode())


def test_a_gym_task_seeds_numpy_too_whatever_the_size_of_our_seed():
    source = ReasoningGymPrompts(kind="reasoning_gym", task="pool_matrix", num_prompts=2)
    assert load_prompts(source, seed=2**62 + 1) == load_prompts(source, seed=2**62 + 1)


def test_a_gym_task_without_gold_answers_is_refused():
    with pytest.raises(ValueError, match=r"entry 0 .*'graph_color'.* has answer None"):
        load_prompts(ReasoningGymPrompts(kind="reasoning_gym", task="graph_color", num_prompts=2), seed=1)


def test_a_name_that_the_hub_refuses_names_the_setting():
    with pytest.raises(ValueError, match=r"prompts\.source\.name 'no such name!!'"):
        load_prompts(DatasetsPrompts(kind="datasets", name="no such name!!"), seed=1)


def prepare(prompts, encode=lambda text, is_chat: [1], **style):
    raw = [RawPrompt(prompt, "1", {}) for prompt in prompts]
    return ingest(raw, PromptFormat(**style), encode, num_heldout=1, max_prompt_tokens=9)


def test_half_a_surrogate_pair_is_replaced_and_counted_and_a_whole_one_is_joined():
    rows, metrics = prepare([json.loads('"a\\ud800"'), "\ud83d\ude00", "c"])
    assert [row["prompt"] for row in rows] == ["a\ufffd", "😀", "c"]
    assert metrics["num_repaired"] == 2


def test_a_prompt_that_the_tokenizer_can_not_read_is_named():
    def refuse(text, is_chat):
        raise Exception("Missing [UNK] token")

    with pytest.raises(ValueError, match=re.escape("can not encode prompt 'é': Missing [UNK]")):
        prepare(["é", "b"], refuse)


def test_a_template_around_chat_messages_is_refused():
    with pytest.raises(ValueError, match="is for text"):
        prepare([[{"role": "user", "content": "x"}]] * 2, style="chat", template="Q: {prompt}")
