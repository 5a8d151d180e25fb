"""Text to ids and back."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tasks.policy.characters import build_tokenizer
from tasks.rollout.engine import Completion, GenerationResult, GroupRequest
from tasks.rollout.prompting import completion_length, decode_completion, encode_prompt, eos_token_ids
from tasks.rollout.rollouts import completion_rows, requests_for

WORDS = [
    "<s>",
    "</s>",
    "<unk>",
    "user",
    "assistant",
    "hello",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "a",
    "4",
    ":",
]


def word_tokenizer(*, adds_bos=True, special=()):
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="</s>",
        additional_special_tokens=list(special),
    )
    fast.chat_template = (
        "<s> {% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}assistant : {% endif %}"
    )
    return fast


CHAT = json.dumps([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_chat_has_exactly_one_bos_also_when_template_and_tokenizer_both_write_one(adds_bos):
    ids = encode_prompt(word_tokenizer(adds_bos=adds_bos), CHAT, True)
    assert ids == [0, 3, 12, 5, 4, 12]


def test_plain_text_gets_the_bos_that_the_tokenizer_adds_and_no_other():
    assert encode_prompt(word_tokenizer(), "hello a", False) == [0, 5, 10]
    assert encode_prompt(word_tokenizer(adds_bos=False), "hello a", False) == [5, 10]


def test_a_tokenizer_that_closes_texts_does_not_close_the_prompt():
    tokenizer = word_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    assert encode_prompt(tokenizer, "hello", False) == [0, 5]


def test_a_chat_without_a_template_names_the_setting():
    with pytest.raises(ValueError, match="style"):
        encode_prompt(build_tokenizer(), CHAT, True)


def test_every_eos_id_of_the_generation_config_counts():
    tokenizer = word_tokenizer()
    assert eos_token_ids(GenerationConfig(eos_token_id=[32007, 32001]), tokenizer) == {32007, 32001, 1}
    assert eos_token_ids(GenerationConfig(eos_token_id=7), tokenizer) == {7, 1}
    assert eos_token_ids(None, tokenizer) == {1}


@pytest.mark.parametrize(
    ("ids", "eos", "length"),
    [
        ([10, 11, 2, 2, 2], {2}, 3),
        ([5, 32007, 32000, 32000], {32007, 32001, 32000}, 2),
        ([5, 6, 7], {2}, 3),
        ([2, 2], {2}, 1),
        ([], {2}, 0),
    ],
)
def test_a_padded_completion_ends_with_its_first_eos(ids, eos, length):
    assert completion_length(ids, frozenset(eos)) == length


TAGGED = [6, 10, 7, 8, 11, 9]


@pytest.mark.parametrize("special", [(), ("<think>", "</think>")])
def test_the_verifier_sees_tags_whether_or_not_they_are_special_tokens(special):
    tokenizer = word_tokenizer(special=special)
    text = decode_completion(tokenizer, [*TAGGED, 1], frozenset({1}))
    assert text.split() == ["<think>", "a", "</think>", "<answer>", "4", "</answer>"]


def test_only_the_final_eos_is_dropped_and_padding_after_it():
    tokenizer = word_tokenizer()
    assert decode_completion(tokenizer, [10, 1, 1, 1], frozenset({1})) == "a"
    assert decode_completion(tokenizer, [10, 1, 11], frozenset({1})).split() == ["a", "</s>", "4"]


def test_an_eos_written_as_characters_does_not_cut_the_text():
    tokenizer = build_tokenizer()
    ids = tokenizer("1+1", add_special_tokens=False)["input_ids"]
    assert decode_completion(tokenizer, [*ids, tokenizer.eos_token_id], frozenset({tokenizer.eos_token_id})) == "1+1"


@pytest.mark.smollm2
class TestSmolLM2:
    def test_known_ids(self, smollm2_tokenizer):
        encode = lambda text: smollm2_tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
        assert encode("hello") == [28120]
        assert encode("철") == [183, 127, 250]
        assert len(encode("정답은 42입니다")) == 17
        assert smollm2_tokenizer.pad_token_id == smollm2_tokenizer.eos_token_id == 2

    @pytest.mark.parametrize(
        ("ids", "text", "again"),
        [([2797, 5365], "hello", [28120]), ([373, 900], "think", [17400]), ([198, 198], "\n\n", [1116])],
    )
    def test_text_does_not_lead_back_to_the_sampled_ids(self, smollm2_tokenizer, ids, text, again):
        # Why rows keep their ids: the round trip through text gives other ones.
        assert decode_completion(smollm2_tokenizer, [*ids, 2], frozenset({2})) == text
        assert smollm2_tokenizer(text, add_special_tokens=False)["input_ids"] == again

    def test_prompt_and_completion_encoded_together_are_other_ids_than_the_row_holds(self, smollm2_tokenizer):
        encode = lambda text: smollm2_tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
        assert encode("x==1") == [104, 1189, 33]
        one = GroupRequest("g", "p", tuple(encode_prompt(smollm2_tokenizer, "x=", False)), "1", (0,))
        answer = Completion("g", 0, (45, 33), (-1.0, -2.0), "length")
        rows, _ = completion_rows(
            [one],
            GenerationResult([answer], []),
            tokenizer=smollm2_tokenizer,
            eos_ids=frozenset({2}),
            temperature=1.0,
            policy_digest="d",
        )
        assert rows[0]["prompt_token_ids"] + rows[0]["completion_token_ids"] == [104, 45, 45, 33]
        assert (rows[0]["text"], rows[0]["sampler_logprobs"]) == ("=1", [-1.0, -2.0])

    def test_the_last_ids_of_a_chat_hold_its_markers(self, smollm2_tokenizer):
        ids = encode_prompt(smollm2_tokenizer, json.dumps([{"role": "user", "content": "2+2?"}]), True)
        assert ids[-10:] == [34, 27, 34, 47, 2, 198, 1, 520, 9531, 198]
        assert smollm2_tokenizer.decode(ids[-10:]) == "2+2?<|im_end|>\n<|im_start|>assistant\n"
        selection = [{"group_id": "g", "prompt_id": "p", "prompt_token_ids": ids[-10:], "answer": "4"}]
        assert requests_for(selection, num_samples=2, seed_parts=(1,))[0].prompt_token_ids == tuple(ids[-10:])

    def test_an_eos_in_the_prompt_is_no_padding(self, smollm2_tokenizer):
        ids = encode_prompt(smollm2_tokenizer, CHAT, True)
        assert ids.count(2) == 2  # the ends of the system and the user message
        assert smollm2_tokenizer.decode(ids).endswith("<|im_start|>assistant\n")

    @pytest.mark.parametrize("text", ["정답은 42입니다", "철", "日本語"])
    def test_characters_split_over_tokens_decode_whole(self, smollm2_tokenizer, text):
        ids = smollm2_tokenizer(text, add_special_tokens=False)["input_ids"]
        assert decode_completion(smollm2_tokenizer, [*ids, 2], frozenset({2})) == text
        one_by_one = "".join(smollm2_tokenizer.decode([token]) for token in ids)
        assert "\ufffd" in one_by_one  # the bug that decoding token by token has

    def test_a_character_that_is_cut_is_one_replacement_character(self, smollm2_tokenizer):
        assert decode_completion(smollm2_tokenizer, [183, 127], frozenset({2})).count("\ufffd") <= 1
