"""Instructions: every kind is covered, any text and any row is read, and a long text takes seconds at most."""

import json
import time
import typing
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.verifiers.instruction_checks import CHECKS
from tasks.verifiers.instructions import read_instructions, variants, verify
from tasks.verifiers.languages import SCRIPTS, is_in, letters_by_script
from tasks.verifiers.text_kinds import InstructionsVerifier
from tasks.verifiers.text_units import joined_words, paragraphs, sentences, words
from tasks.verifiers.verdict import ScoreItem

ROOT = Path(__file__).parents[4]
GOLDEN = [
    json.loads(line)
    for line in (ROOT / "tests/golden/verifiers/instructions.jsonl").read_text(encoding="utf-8").splitlines()
]
IFBENCH = ROOT.parent / "shared" / "data" / "ifbench" / "test.jsonl"

EXAMPLES = {
    "keywords:existence": {"keywords": ["a", "나"]},
    "keywords:frequency": {"keyword": "a", "frequency": 2, "relation": "at least"},
    "keywords:forbidden_words": {"forbidden_words": ["a", "C++", "나"]},
    "keywords:letter_frequency": {"letter": "a", "let_frequency": 2, "let_relation": "less than"},
    "language:response_language": {"language": "en"},
    "length_constraints:number_sentences": {"num_sentences": 2, "relation": "at least"},
    "length_constraints:number_paragraphs": {"num_paragraphs": 2},
    "length_constraints:number_words": {"num_words": 3, "relation": "at least"},
    "length_constraints:nth_paragraph_first_word": {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"},
    "detectable_content:number_placeholders": {"num_placeholders": 1},
    "detectable_content:postscript": {"postscript_marker": "P.P.S"},
    "detectable_format:number_bullet_lists": {"num_bullets": 1},
    "detectable_format:constrained_response": {},
    "detectable_format:number_highlighted_sections": {"num_highlights": 1},
    "detectable_format:multiple_sections": {"section_spliter": "Section", "num_sections": 2},
    "detectable_format:json_format": {},
    "detectable_format:title": {},
    "combination:two_responses": {},
    "combination:repeat_prompt": {"prompt_to_repeat": "a b"},
    "startend:end_checker": {"end_phrase": "b."},
    "startend:quotation": {},
    "change_case:capital_word_frequency": {"capital_frequency": 2, "capital_relation": "less than"},
    "change_case:english_capital": {},
    "change_case:english_lowercase": {},
    "punctuation:no_comma": {},
}
EVERY = [{"id": name, **arguments} for name, arguments in EXAMPLES.items()]


def id_of(kind):
    return typing.get_args(kind.model_fields["id"].annotation)[0]


def verdict(instructions, completion, **settings):
    gold = instructions if isinstance(instructions, str) else json.dumps({"instructions": instructions})
    return verify(InstructionsVerifier(kind="instructions", **settings), ScoreItem("", gold, completion, {}))


pieces = st.sampled_from(
    ["***", "*", "\n", "\n\n", ". ", "P.P.S ", "<<", ">>", "[", "]", '"', "```", "{}", "Section 1", "- ", "a", "A", ",", "나",
     "。", "</think>", "<think>", "\x00", "\ud800", "\u0301", "My answer is yes.", "1.", "…"]
)  # fmt: skip
texts = st.lists(pieces | st.text(max_size=6), max_size=14).map("".join)


@pytest.mark.parametrize("kind", CHECKS, ids=id_of)
def test_every_kind_has_an_accepted_and_a_refused_answer_in_the_golden_file(kind):
    rewards = Counter()
    for case in GOLDEN:
        if case["reward"] is not None and f'"{id_of(kind)}"' in case["gold"] and "settings" not in case:
            rewards[case["reward"]] += 1
    assert rewards[1] >= 1
    assert rewards[0] >= 1


def test_there_are_the_25_kinds_of_ifeval():
    assert {id_of(kind) for kind in CHECKS} == set(EXAMPLES)
    assert len(CHECKS) == 25


@settings(deadline=None)  # the first call reads langdetect's profiles
@given(texts)
def test_any_text_is_scored_and_what_is_followed_strictly_is_followed_loosely(text):
    for instruction in EVERY:
        found = [verdict([instruction], text, mode=mode) for mode in ("strict", "loose")]
        assert [each.status for each in found] == ["scored", "scored"]
        assert found[0].reward <= found[1].reward
    share = verdict(EVERY, text, scoring="fraction").reward
    assert share == pytest.approx(sum(verdict([each], text).reward for each in EVERY) / len(EVERY))
    assert verdict(EVERY, text).reward == float(share == 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([*EXAMPLES, "id", "kwargs"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "keywords", "letter"]), inner),
)


@given(
    st.text()
    | st.fixed_dictionaries({"instructions": JSON}).map(json.dumps)
    | st.fixed_dictionaries({"instruction_id_list": JSON, "kwargs": JSON}).map(json.dumps)
)
def test_any_gold_answer_is_read_or_unscored(gold):
    assert verdict(gold, "a").status in ("scored", "unscored")


@pytest.mark.parametrize("instruction", EVERY, ids=lambda each: each["id"])
def test_each_argument_is_needed_and_no_other_is_taken(instruction):
    assert verdict([instruction], "a").status == "scored"
    assert verdict([{**instruction, "other": None}], "a").status == "scored"
    for key in set(instruction) - {"id"}:
        found = verdict([{**instruction, key: None}], "a")
        assert found.status == "unscored"
        assert instruction["id"] in found.reason
        assert key in found.reason
    assert verdict([{**instruction, "other": 1}], "a").status == "unscored"


def test_an_instruction_that_no_check_knows_is_named():
    found = verdict([{"id": "punctuation:no_comma"}, {"id": "count:numbers", "N": 1}], "a, b")
    assert (found.status, found.reward) == ("unscored", None)
    assert "count:numbers" in found.reason


def test_a_broken_instruction_is_named():
    found = verdict([{"id": "detectable_format:title"}, {"id": "punctuation:no_comma"}], "<<a, b>>")
    assert found.reason == "1 of 2 are followed; not punctuation:no_comma"


def test_every_row_of_ifbench_is_unscored_by_the_name_of_its_instruction():
    if not IFBENCH.is_file():
        pytest.skip("shared/data/ifbench does not stand beside the checkout")
    rows = [json.loads(line) for line in IFBENCH.read_text(encoding="utf-8").splitlines()]
    config = InstructionsVerifier(kind="instructions")
    num_unscored = 0
    for row in rows:
        unknown = [name for name in row["instruction_id_list"] if name not in EXAMPLES]
        found = verify(config, ScoreItem(row["prompt"], "", "An answer.", row))
        assert (found.status == "unscored") is bool(unknown), row["key"]
        if unknown:
            assert unknown[0] in found.reason
            num_unscored += 1
    assert (len(rows), num_unscored) == (300, 300)


def test_the_answer_stands_before_the_metadata():
    row = {"instructions": [{"id": "punctuation:no_comma"}]}
    assert [each.id for each in read_instructions(" ", row)] == ["punctuation:no_comma"]
    other = json.dumps({"instructions": [{"id": "detectable_format:title"}]})
    assert [each.id for each in read_instructions(other, row)] == ["detectable_format:title"]


def test_the_eight_texts_of_the_loose_mode():
    assert list(variants("*a*\nb\n*c*")) == [
        "*a*\nb\n*c*", "a\nb\nc", "b\n*c*", "b\nc", "*a*\nb", "a\nb", "b", "b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Lee met J. Kim, e.g. at 3.14 p.m. sharp.", ["Dr. Lee met J. Kim, e.g. at 3.14 p.m.", "sharp."]),
        ("Well... maybe. So... Yes", ["Well... maybe.", "So...", "Yes"]),
        ("1. First\n2. Second. Third", ["1. First\n2. Second.", "Third"]),
        ("It was 1990. Then\n1999. more", ["It was 1990.", "Then\n1999.", "more"]),
        ('He said "Go." She went (home.) So do I. Yes', ['He said "Go."', "She went (home.)", "So do I.", "Yes"]),
        ("안녕하세요. 반갑습니다!", ["안녕하세요.", "반갑습니다!"]),
        ("これ。それ！あれ", ["これ。", "それ！", "あれ"]),
        ("यह है। वह है।", ["यह है।", "वह है।"]),
        ("The answer is no. Really?!", ["The answer is no.", "Really?!"]),
        ("a.b.c www.a.com ...", ["a.b.c www.a.com ..."]),
        ("... !!! ?", []),
        ("no end\n\nhere", ["no end\n\nhere"]),
    ],
)
def test_where_a_sentence_ends(text, expected):
    assert sentences(text) == expected


def test_what_a_word_is():
    assert words("don't well-known 3.5 _x") == ["don", "t", "well", "known", "3", "5", "_x"]
    assert joined_words("don't WELL-KNOWN U.S. -a-") == ["don't", "WELL-KNOWN", "U.S", "a"]
    assert len(words("나는 학교에 갔다")) == 3
    assert len(words("हिन्दी में चार शब्द")) == 4
    assert len(words("cafe\u0301 noir")) == 2
    assert paragraphs("\n\na\nb\n \n\nc\n") == ["a\nb", "c"]


@given(texts, texts)
def test_sentences_words_and_paragraphs_are_pieces_of_the_text_in_order(text, other):
    for cut in (sentences, paragraphs):
        position = 0
        for piece in cut(text):
            position = text.index(piece, position) + len(piece)
    assert len(words(f"{text} {other}")) == len(words(text)) + len(words(other))


def test_a_language_with_a_script_of_its_own_needs_seven_tenths_of_the_letters():
    assert is_in("가" * 7 + "a" * 3, "ko")
    assert not is_in("가" * 6 + "a" * 3, "ko")
    assert is_in("漢" * 9 + "の", "ja")
    assert not is_in("漢" * 10 + "の", "ja")
    assert is_in("漢" * 10 + "の", "zh")
    assert not is_in("", "ko")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Das Wetter ist heute sehr schön, und wir gehen in den Park."),
        ("es", "Hoy hace muy buen tiempo y vamos a pasear por el parque."),
        ("it", "Oggi il tempo è molto bello e andiamo a fare una passeggiata nel parco."),
        ("pt", "Hoje o tempo está muito bom e vamos passear no parque."),
        ("vi", "Hôm nay thời tiết rất đẹp và chúng tôi đi dạo trong công viên."),
        ("uk", "Сьогодні дуже гарна погода, і ми йдемо гуляти в парк."),
        ("bg", "Днес времето е много хубаво и ние отиваме на разходка в парка."),
        ("hi", "आज मौसम बहुत अच्छा है और हम पार्क जा रहे हैं।"),
        ("mr", "आज हवामान खूप छान आहे आणि आम्ही उद्यानात जात आहोत."),
        ("fa", "امروز هوا بسیار خوب است و ما به پارک می‌رویم."),
        ("ur", "آج موسم بہت اچھا ہے اور ہم باغ میں جا رہے ہیں۔"),
        ("bn", "আজ আবহাওয়া খুব ভালো এবং আমরা পার্কে যাচ্ছি।"),
        ("el", "Ο καιρός είναι πολύ καλός σήμερα."),
        ("he", "מזג האוויר יפה מאוד היום."),
        ("zh-cn", "今天天气很好，我们去公园散步。"),
        ("zh-tw", "今天天氣很好，我們去公園散步。"),
    ],
)
def test_a_sentence_is_in_its_own_language_and_in_no_other(language, text):
    both = {language, "zh"} if language.startswith("zh") else {language}
    assert {each for each in SCRIPTS if is_in(text, each)} == both


@given(st.text())
def test_every_letter_has_one_script(text):
    assert sum(letters_by_script(text).values()) == sum(map(str.isalpha, text))
    assert sum(is_in(text, language) for language in ("ko", "ja", "zh", "th", "el")) <= 1


LONG = 1_000_000
LONG_TEXTS = {
    "spaces": " " * LONG + "a", "newlines": "\n" * LONG + "a", "stars": "*" * LONG, "star words": "*a " * (LONG // 3),
    "brackets": "[" * LONG, "titles": "<<a" * (LONG // 3), "closings": "." + ")" * LONG, "stops": ". " * (LONG // 2) + "a",
    "sentences": "Ab c. " * (LONG // 6), "hyphens": "a-" * (LONG // 2), "marks": "a\u0301" * (LONG // 2), "quotes": '"' * LONG,
    "json": '{"a":' * (LONG // 5), "fences": "```" * (LONG // 3), "postscripts": "P.P.S\n" * (LONG // 6), "han": "漢" * LONG,
    "sections": "Section 1" * (LONG // 9), "digits": "1" * LONG, "bullets": "- a\n" * (LONG // 4), "mails": "a.b@" * (LONG // 4),
    "one word": "A" * LONG, "dividers": "***\n" * (LONG // 4), "numbers": "\n1." * (LONG // 3),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_all_kinds_on_a_million_characters_take_seconds_at_most(name):
    began = time.process_time()  # the machine may be busy with other things
    found = verdict(EVERY, LONG_TEXTS[name], mode="strict", scoring="fraction")
    assert time.process_time() - began < 10
    assert found.status == "scored"
    assert found.reward < 1
