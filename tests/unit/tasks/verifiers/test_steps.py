"""Steps: cut from text, placed on tokens, checked."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tasks.policy.characters import CHARACTERS, TAGS, build_tokenizer
from tasks.rollout.prompting import prefix_lengths
from tasks.verifiers.steps import StepRewards, at_positions, cut, on_tokens, token_ends
from tasks.verifiers.text_kinds import NewlineSplit, SeparatorSplit, TagSplit

LINES = NewlineSplit(kind="newline")
COMMAS = SeparatorSplit(kind="separator", separators=(",", "</think>"))
BLOCKS = TagSplit(kind="tag", tag="step")
KOREAN = SeparatorSplit(kind="separator", separators=("다",))
EMOJI = SeparatorSplit(kind="separator", separators=("👍🏽", "👍"))
SPLITS = (LINES, COMMAS, BLOCKS, KOREAN, EMOJI)


def pieces(text, split):
    ends = cut(text, split)
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    ("split", "text", "expected"),
    [
        (LINES, "a\nb", ["a\n", "b"]),
        (LINES, "a\n\n \nb\n", ["a\n\n \n", "b\n"]),
        (LINES, "\n\na\nb", ["\n\na\n", "b"]),
        (LINES, "a\r\n\r\nb\rc\n", ["a\r\n\r\n", "b\r", "c\n"]),
        (LINES, "a\n</think>\n", ["a\n</think>\n"]),
        (LINES, "\r\n\n", ["\r\n\n"]),
        (COMMAS, "<think>1,2</think>7", ["<think>1,", "2</think>", "7"]),
        (COMMAS, "1,2", ["1,", "2"]),
        (COMMAS, "1, </b> </think>\n", ["1, </b> </think>\n"]),
        (COMMAS, "1,</think>7", ["1,", "</think>", "7"]),
        (COMMAS, ",,,", [",", ",", ","]),
        (COMMAS, " \n", [" \n"]),
        (COMMAS, "1,<b>", ["1,", "<b>"]),
        (BLOCKS, "<step>a</step> then <step>b</step>7", ["<step>a</step>", " then <step>b</step>", "7"]),
        (BLOCKS, "a</step><step>b</step>\n", ["a</step><step>b</step>\n"]),
        (BLOCKS, "<step>a</step><step>b", ["<step>a</step>", "<step>b"]),
        (BLOCKS, "<step>a<step>b</step>c</step>", ["<step>a<step>b</step>", "c</step>"]),
        (KOREAN, "더한다 뺀다 끝", ["더한다", " 뺀다", " 끝"]),
        (EMOJI, "1👍🏽2👍3", ["1👍🏽", "2👍", "3"]),
    ],
)
def test_a_text_is_cut_where_its_steps_end(split, text, expected):
    assert pieces(text, split) == expected


def test_the_longest_of_several_separators_ends_the_step_in_any_order_of_the_settings():
    for separators in ((",", ",\n"), (",\n", ",")):
        assert cut("1,\n2,3", SeparatorSplit(kind="separator", separators=separators)) == [3, 5, 6]


def test_a_separator_is_text_and_not_a_pattern():
    assert cut("a.b+c", SeparatorSplit(kind="separator", separators=(".", "b+"))) == [2, 4, 5]


@pytest.mark.parametrize("split", SPLITS)
def test_an_empty_text_has_no_steps(split):
    assert cut("", split) == []


TEXTS = st.lists(
    st.sampled_from([",", "\n", "\r\n", " ", "<step>", "</step>", "</think>", "5+8=13", "다", "더한", "👍", "👍🏽", "é"]), max_size=12
).map("".join)  # fmt: skip


@pytest.mark.parametrize("split", SPLITS)
@given(text=TEXTS)
def test_the_steps_partition_every_text_and_the_last_one_says_something(split, text):
    found = pieces(text, split)
    assert "".join(found) == text
    assert all(found)
    if len(found) > 1:
        said = found[-1]
        for mark in ("</step>", "</think>"):
            said = said.replace(mark, "")
        assert said.strip()


# Tokens "5+8" "=13" "," "13" "-1=1" "2,12" "-5" "=7" <eos>, lengths by hand.
LENGTHS = [0, 3, 6, 7, 9, 13, 17, 19, 21, 21]


def test_a_step_ends_with_the_token_that_writes_its_last_character():
    # "5+8=13," ends at 7, exactly with token 2; "13-1=12," ends at 15, inside "2,12", token 5
    assert token_ends(9, [7, 15, 21], LENGTHS.__getitem__) == [2, 5, 8]


def test_the_last_step_takes_every_token_that_is_left():
    assert token_ends(9, [7], LENGTHS.__getitem__) == [8]
    assert token_ends(1, [7], LENGTHS.__getitem__) == [0]
    assert token_ends(3, [0], LENGTHS.__getitem__) == [2]


def test_steps_that_end_in_one_token_are_one_step_with_the_smallest_reward():
    steps = [(7, 1.0), (14, 0.5), (15, 0.25), (16, 0.75), (21, 1.0)]
    assert token_ends(9, [end for end, _ in steps], LENGTHS.__getitem__) == [2, 5, 8]
    assert on_tokens(steps, 9, LENGTHS.__getitem__) == (StepRewards((2, 5, 8), (1.0, 0.25, 1.0)), 2)


def test_a_step_that_ends_in_the_last_token_merges_with_the_last_step():
    assert on_tokens([(2, 0.0), (3, 1.0)], 1, LENGTHS.__getitem__) == (StepRewards((0,), (0.0,)), 1)


def test_without_tokens_or_without_steps_nothing_is_placed():
    assert token_ends(0, [3], LENGTHS.__getitem__) == token_ends(4, [], LENGTHS.__getitem__) == []
    assert on_tokens([(3, 1.0)], 0, LENGTHS.__getitem__) == (StepRewards((), ()), 0)


@pytest.mark.parametrize("ends", [[3, 3], [4, 2]])
def test_character_ends_that_do_not_increase_are_refused(ends):
    with pytest.raises(ValueError, match=f"{ends[0]}, {ends[1]}"):
        token_ends(9, ends, LENGTHS.__getitem__)


def test_no_prefix_is_decoded_more_often_than_bisection_needs():
    asked = []

    def length(num_tokens):
        asked.append(num_tokens)
        return num_tokens

    assert token_ends(1024, [100, 1024], length) == [99, 1023]
    assert len(asked) <= 10
    assert max(asked) < 1024


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12), st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted)
)  # fmt: skip
def test_ends_increase_to_the_last_token_also_when_lengths_waver(lengths, char_ends):
    found = token_ends(len(lengths), char_ends, [0, *lengths].__getitem__)
    assert found == sorted(set(found))
    assert found[-1] == len(lengths) - 1
    assert found[0] >= 0


@given(st.lists(st.sampled_from([*TAGS, *CHARACTERS]), max_size=40), st.booleans(), st.sampled_from([LINES, COMMAS]))
def test_of_the_character_tokenizer_each_step_ends_where_its_text_does(parts, stopped, split):
    tokenizer = build_tokenizer()
    text = "".join(parts)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] * stopped
    eos_ids = frozenset({tokenizer.eos_token_id})
    ends = token_ends(len(ids), cut(text, split), prefix_lengths(tokenizer, eos_ids)(ids))
    starts = [0, *(end + 1 for end in ends)]
    texts = [tokenizer.decode(ids[start : end + 1]) for start, end in zip(starts, ends, strict=False)]
    assert [each.removesuffix("<eos>") for each in texts] == pieces(text, split)


@pytest.fixture(scope="module")
def byte_tokenizer():
    """ASCII by the character, all else by the byte: a Korean syllable takes three tokens, an emoji four."""
    words = {chr(byte) if byte < 128 else f"<0x{byte:02X}>": byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab={**words, "<eos>": 256}, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", clean_up_tokenization_spaces=False)


@pytest.mark.parametrize(
    ("text", "split", "expected"),
    [
        ("더한다 뺀다 끝", KOREAN, [8, 15, 20]),  # 3 bytes a syllable, 1 a space, eos
        ("1👍🏽2👍3", EMOJI, [8, 13, 15]),  # 4 bytes for each of thumb and skin
        ("가,나", COMMAS, [3, 7]),
        ("가\r\n나", LINES, [4, 8]),
    ],
)
def test_a_step_ends_with_the_last_byte_of_its_last_character(byte_tokenizer, text, split, expected):
    ids = [*text.encode(), 256]
    assert token_ends(len(ids), cut(text, split), prefix_lengths(byte_tokenizer, frozenset({256}))(ids)) == expected


def test_a_completion_that_the_limit_cut_inside_a_character_keeps_its_steps(byte_tokenizer):
    ids = list("가,나다".encode())[:-2]  # one byte of the last syllable
    length = prefix_lengths(byte_tokenizer, frozenset({256}))(ids)
    text = byte_tokenizer.decode(ids)
    assert text == "가,\ufffd\ufffd\ufffd\ufffd"  # byte fallback gives a whole run up for one byte
    assert token_ends(len(ids), cut(text, COMMAS), length) == [3, 7]
    assert [length(count) for count in range(5)] == [0, 0, 0, 1, 2]
    assert length(8) == len(text)


@given(st.lists(st.integers(0, 255), max_size=30), st.sampled_from([COMMAS, LINES, KOREAN]))
def test_bytes_that_are_no_text_at_all_still_have_their_steps(byte_tokenizer, ids, split):
    text = byte_tokenizer.decode(ids)
    found = token_ends(len(ids), cut(text, split), prefix_lengths(byte_tokenizer, frozenset({256}))(ids))
    assert found == sorted(set(found))
    assert found[-1:] == [len(ids) - 1][: len(ids)]


@pytest.mark.smollm2
@pytest.mark.parametrize("split", SPLITS)
@given(ids=st.lists(st.integers(0, 49151), max_size=24), text=TEXTS)
def test_of_a_byte_level_tokenizer_every_completion_has_its_steps(smollm2_tokenizer, split, ids, text):
    ids = [*smollm2_tokenizer(text, add_special_tokens=False)["input_ids"], *ids]
    length = prefix_lengths(smollm2_tokenizer, frozenset({2}))(ids)
    whole = length(len(ids))
    decoded = smollm2_tokenizer.decode(ids)
    ends = cut(decoded[:whole], split)
    found = token_ends(len(ids), ends, length)
    assert found == sorted(set(found))
    assert found[-1:] == ([len(ids) - 1] if ends and ids else [])
    assert len(found) <= len(ends)


@pytest.mark.smollm2
def test_the_ends_of_a_known_completion(smollm2_tokenizer):
    text = "5+8=13,13-1=12,\n뺀다</think><answer>7</answer>"
    ids = [*smollm2_tokenizer(text, add_special_tokens=False)["input_ids"], 2]
    ends = token_ends(len(ids), cut(text, COMMAS), prefix_lengths(smollm2_tokenizer, frozenset({2}))(ids))
    starts = [0, *(end + 1 for end in ends)]
    assert [smollm2_tokenizer.decode(ids[start : end + 1]) for start, end in zip(starts, ends, strict=False)] == [
        "5+8=13,",
        "13-1=12,",
        "\n뺀다</think><",  # "><" is one token
        "answer>7</answer><|im_end|>",
    ]


@pytest.mark.parametrize(
    ("ends", "rewards", "said"),
    [
        ((2, 4), (1.0,), "2 step ends and 1 step rewards"),
        ((2, 2, 4), (1.0, 1.0, 1.0), "step end 2 does not come after 2"),
        ((3, 1, 4), (1.0, 1.0, 1.0), "step end 1 does not come after 3"),
        ((-1, 4), (1.0, 1.0), "step end -1"),
        ((2, 5), (1.0, 1.0), "ends at token 5, the completion at token 4"),
        ((2, 3), (1.0, 1.0), "ends at token 3, the completion at token 4"),
        ((2, 4), (1.0, math.nan), "nan is not finite"),
        ((2, 4), (-math.inf, 0.0), "-inf is not finite"),
    ],
)
def test_step_rewards_that_do_not_fit_a_completion_of_five_tokens_are_refused(ends, rewards, said):
    with pytest.raises(ValueError, match=said):
        StepRewards(ends, rewards).check(5)


@pytest.mark.parametrize(
    ("ends", "rewards", "placed"),
    [
        ((0, 4), (1.0, -2.5), (0, 4)),
        ((0, 3), (1.0, -2.5), (0, 4)),  # the end-of-sequence token belongs to the last step
        ((2,), (0.5,), (4,)),
        ((), (), ()),
    ],
)
def test_steps_end_where_a_reward_model_marked_them(ends, rewards, placed):
    assert at_positions(ends, rewards, 5) == StepRewards(placed, rewards)


@pytest.mark.parametrize(
    ("ends", "rewards", "said"),
    [
        ((2, 5), (1.0, 1.0), "step end 5 is behind a completion of 5 tokens"),
        ((3, 1), (1.0, 1.0), "step end 1 does not come after 3"),
        ((4, 3), (1.0, 1.0), "step end 3 does not come after 4"),
        ((-1, 3), (1.0, 1.0), "step end -1"),
        ((2,), (1.0, 1.0), "1 step ends and 2 step rewards"),
        ((), (1.0,), "0 step ends and 1 step rewards"),
        ((2,), (math.nan,), "nan is not finite"),
    ],
)
def test_marks_that_do_not_fit_the_completion_are_refused(ends, rewards, said):
    with pytest.raises(ValueError, match=said):
        at_positions(ends, rewards, 5)


def test_a_reward_that_is_not_finite_is_never_placed():
    with pytest.raises(ValueError, match="nan is not finite"):
        on_tokens([(7, math.nan), (21, 1.0)], 9, LENGTHS.__getitem__)
