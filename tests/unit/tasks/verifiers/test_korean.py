"""Korean: the share of Hangul, scripts, speech levels, spaces; no text breaks it, and every process says the same."""

import sys
import time
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tasks.verifiers import korean, morphemes
from tasks.verifiers.extras import check_extras
from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.morphemes import Morpheme, Sentence
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.prose import prose_of
from tasks.verifiers.scripts import count_scripts, hangul_share, latin_words, script_of
from tasks.verifiers.spacing import compare_spaces
from tasks.verifiers.speech_levels import LEVELS, best_level, levels_of
from tasks.verifiers.text_kinds import KoreanVerifier
from tasks.verifiers.verdict import ScoreItem

ALL = KoreanVerifier(kind="korean")
GOOD = "사과는 모두 열두 개입니다. 따라서 정답은 열둘입니다."
WITHOUT_KIWI = ("hangul", "scripts")
KOREAN_AND_OTHERS = st.text(
    st.sampled_from("가나다라습니다요. \n,?!\"'()$`\\[]<>/=@abcXYZ012ㅋㅠ\u1100\u1161\u11a8漢か\ufffd\u200b😀\0")
)
ANY = st.text(st.characters(), max_size=200) | KOREAN_AND_OTHERS
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def of(completion, *, is_truncated=False, **changes):
    config = KoreanVerifier(kind="korean", **changes)
    return korean.verify(config, ScoreItem("", "", completion, {}, is_truncated))


def share(text):
    return hangul_share(count_scripts(prose_of(text)))


@pytest.fixture(scope="module", autouse=True)
def _model():
    morphemes.load()


@given(ANY)
@QUICK
def test_any_text_has_a_verdict_and_the_same_one_twice(text):
    first = of(text, scoring="share")
    assert first.status == "scored"
    assert first.reward in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert of(text, scoring="share") == first
    assert (of(text).reward == 1.0) == (first.reward == 1.0)


@given(ANY)
@QUICK
def test_the_share_of_hangul_is_a_share_and_only_letters_change_it(text):
    counts = count_scripts(text)
    found = hangul_share(counts)
    assert found is None or 0 <= found <= 1
    assert hangul_share(count_scripts(text + " 123 +-=!? 😀 ①\ufffd\u0301\u3164")) == found


@given(st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3) | st.sampled_from("a .1"), max_size=60))
@QUICK
def test_composed_and_decomposed_hangul_are_the_same_prose(text):
    assert prose_of(unicodedata.normalize("NFD", text)) == prose_of(text)


def test_a_syllable_and_the_jamo_after_it_are_one():
    assert prose_of("가\u11a8") == "각"


def test_decomposed_text_gets_the_verdict_of_the_composed_one():
    assert of(unicodedata.normalize("NFD", GOOD)) == of(GOOD)
    assert of(GOOD).reward == 1.0


@pytest.mark.parametrize(
    ("letter", "script"),
    [
        ("가", "hangul"), ("ㅋ", "hangul"), ("\u1100", "hangul"), ("\uffa1", "hangul"), ("a", "latin"), ("é", "latin"),
        ("Ａ", "latin"), ("𝐀", "latin"), ("漢", "han"), ("々", "han"), ("か", "kana"), ("ｶ", "kana"), ("ー", "kana"),
        ("Я", "cyrillic"), ("π", "greek"), ("µ", "greek"), ("ไ", "other"), ("ع", "other"), ("1", None), ("１", None),
        ("㎏", None), ("①", None), ("😀", None), ("\ufffd", None), ("\u3164", None), ("\u1160", None),
        ("\0", None), (" ", None), ("\u0301", None),
    ],
)  # fmt: skip
def test_the_script_of_a_letter(letter, script):
    assert script_of(letter) == script


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("값은 `x = foo(bar)`이다", "값은 이다"),
        ("가```\nfor x in y\n```나", "가 나"),
        ("가```\nfor x in y", "가"),
        ("가 https://a.bc/d?e=f#g 나", "가 나"),
        ("메일은 some.one@example.com 입니다", "메일은 입니다"),
        ("<think>가</think><a href='x y'>나</a><|im_end|>", "가 나"),
        ("a < b이고 c > d", "a < b이고 c > d"),
        ("<이름>", "<이름>"),
        ("$x_1+y$ 와 $$\\frac{a}{b}$$ 와 \\(a b\\) 와 \\[c\nd\\] 끝", "와 와 와 끝"),
        ("$5에 사서 $8에", "$5에 사서 $8에"),
        ("$these are words$", "$these are words$"),
        ("$\\text{these are words}$", "$ {these are words}$"),
        ("$these\nare$", "$these are$"),
        ("\\boxed{3\\text{개}}", "{3 {개}}"),
        ("가\u200b나", "가나"),
        ("\ud800가", "\ufffd가"),
    ],
)
def test_code_formulas_tags_and_addresses_are_left_out(text, left):
    assert " ".join(prose_of(text).split()) == left


def test_words_in_a_row_end_at_hangul_and_at_numbers():
    assert latin_words("New York, the city", ()) == (4, 1.0)
    assert latin_words("나는 New York 에서 the city 를", ()) == (2, 4 / 7)
    assert latin_words("buy 3 more", ()).longest_run == 1
    assert latin_words("A, B, C", ()) == (0, 0.0)
    assert latin_words("ＧＰＵ 서버", ()) == (1, 0.5)
    assert latin_words("GPU 서버", {"gpu"}) == (0, 0.0)
    assert latin_words("", ()) == (0, 0.0)


def ended(*morphemes_given, text="x"):
    return Sentence(text, tuple(Morpheme(*each.split("/")) for each in morphemes_given))


@pytest.mark.parametrize(
    ("sentence", "fitting"),
    [
        (ended("하/VV", "\u11b8니다/EF", "./SF"), {"hapsyo"}),
        (ended("하/VV", "시/EP", "\u11b8시오/EF", "!/SF"), {"hapsyo"}),
        (ended("었/EP", "습니까/EF", "?/SF"), {"hapsyo"}),
        (ended("었/EP", "습니다/EF", "\u11bc/Z_CODA"), {"hapsyo"}),
        (ended("하/VV", "어요/EF"), {"haeyo"}),
        (ended("그렇/VA", "죠/EF"), {"haeyo"}),
        (ended("저/NP", "요/JX"), {"haeyo"}),
        (ended("터/NNB", "이/VCP", "\u11ab데/EC", "요/JX"), {"haeyo"}),
        (ended("있/VV", "을까요/EF", "?/SF"), {"hapsyo", "haeyo"}),
        (ended("이/VCP", "\u11ab가/EF", "요/JX", "?/SF"), {"hapsyo", "haeyo"}),
        (ended("이/VCP", "니까요/EF", "./SF"), {"haeyo"}),
        (ended("먹/VV", "는다/EF", "./SF"), {"haera"}),
        (ended("같/VA", "다/EC", ":/SP"), {"haera"}),
        (ended("먹/VV", "어/EF"), {"hae"}),
        (ended("가/VV", "자/EF"), {"hae", "haera"}),
        (ended("하/VV", "라/EF"), {"haera"}),
        (ended("하/VV", "오/EF"), set()),
        (ended("하/VV", "음/EF"), None),
        (ended("하/VV", "고/EF"), None),
        (ended("하/VV", "으니까/EF"), None),
        (ended("하/VV", "게/EC", "!/SF"), None),
        (ended("사과/NNG", "3/SN", "개/NNB"), None),
        (ended("12/SN"), None),
        (ended("./SF"), None),
        (ended(), None),
        (ended("좋/VA", "습니다/EF", "(/SSO", "웃음/NNG", ")/SSC", "./SF"), {"hapsyo"}),
        (ended("(/SSO", "좋/VA", "습니다/EF", "./SF", ")/SSC"), {"hapsyo"}),
        (ended("좋/VA", "습니다/EF", "./SF", "OK/SL"), {"hapsyo"}),
        (ended("좋/VA", "습니다/EF", "OK/SL"), None),
        (ended("먹/VV", "어/EF", "./SF", text='"먹어."'), None),
        (ended("먹/VV", "어/EF", "./SF", text='"먹어.'), {"hae"}),
    ],
)
def test_the_levels_that_an_ending_fits(sentence, fitting):
    assert levels_of(sentence) == fitting


def test_the_best_level_counts_the_sentences_that_fit_it():
    both, formal, old = frozenset({"hapsyo", "haeyo"}), frozenset({"hapsyo"}), frozenset()
    assert best_level([both, formal, old, formal], LEVELS) == ("hapsyo", 0.75)
    assert best_level([both, formal], ("haeyo",)) == ("haeyo", 0.5)
    with pytest.raises(ValueError, match="no sentence"):
        best_level([], LEVELS)


def test_spaces_are_compared_where_hangul_stands_on_both_sides():
    def corrected(line):
        return {"나는집에 간 다": "나는 집에 간다", "10 달러 OK 네": "10달러 OK네"}[line]

    assert compare_spaces("나는집에 간 다\n\n10 달러 OK 네", corrected) == (2, 3)
    assert compare_spaces("나는집에 간 다", corrected).error_share == 0.5
    assert compare_spaces("", corrected).error_share == 0.0


def test_two_levels_joined_are_refused_whichever_comes_first():
    texts = [
        "우리는 어제 산에 올랐습니다.",
        "우리는 어제 산에 올랐어요.",
        "우리는 어제 산에 올랐어.",
        "우리는 어제 산에 올랐다.",
    ]
    for one in texts:
        assert of(f"{one} {one}").reward == 1.0, one
        for other in texts:
            assert of(f"{one} {other}").reward == (1.0 if one == other else 0.0), (one, other)


def test_a_completion_that_is_cut_loses_only_its_last_sentence():
    assert of("모두 열두 개입니다. 그래서 정답은 열두 개가 돼", is_truncated=True).reward == 1.0
    assert of("모두 열두 개입니다. 그래서 정답은 열두 개가 돼").reward == 0.0
    assert of("모두 열두 개입니다. 그렇게 돼요.", is_truncated=True).reward == 0.0


def test_only_so_much_is_analysed():
    assert of((GOOD + " ") * 8 + "그렇게 돼요. " * 30, max_analysed_characters=200).reward == 1.0
    assert of((GOOD + " ") * 8 + "그렇게 돼요. " * 30).reward == 0.0


def test_without_the_extra_the_checks_that_need_it_are_errors_that_name_the_cure(monkeypatch):
    morphemes.load.cache_clear()
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    for text in (GOOD, "", "English"):
        found = of(text)
        assert (found.reward, found.status) == (None, "error")
        assert "pip install -e '.[korean]'" in found.reason
        assert of(text, checks=WITHOUT_KIWI).status == "scored"
    assert of(GOOD, checks=WITHOUT_KIWI).reward == 1.0
    monkeypatch.undo()
    assert of(GOOD).reward == 1.0


def test_a_run_that_lacks_the_extra_is_refused_before_it_starts(monkeypatch):
    check_extras([ALL])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"'korean': kiwipiepy is missing.*pip install"):
        check_extras([ALL])
    check_extras([KoreanVerifier(kind="korean", checks=WITHOUT_KIWI)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checks": ()}, "at least 1"),
        ({"checks": ("hangul", "hangul")}, "names one twice"),
        ({"checks": ("grammar",)}, "hangul"),
        ({"checks": ("hangul",), "speech_level": "haeyo"}, "speech_level has no meaning without check speech_level"),
        ({"checks": ("scripts",), "max_analysed_characters": 500}, "without check speech_level or spacing"),
        ({"min_hangul_share": 0}, "greater than 0"),
        ({"min_level_share": 0.5}, "greater than 0.5"),
        ({"speech_level": "polite"}, "hapsyo"),
        ({"allowed_scripts": ("latin",)}, "greek"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, said):
    with pytest.raises(ValidationError, match=said):
        KoreanVerifier(kind="korean", **changes)


def test_settings_survive_the_way_to_the_worker():
    adapter = TypeAdapter(list[VerifierConfig])
    for config in (ALL, KoreanVerifier(kind="korean", checks=("scripts",), allowed_words=("GPU",))):
        assert adapter.validate_json(adapter.dump_json([config])) == [config]


NASTY = ["", "\0", "\ud800", "\ufffd", "1" * 20_000, "가" * 20_000, "ㅋ" * 20_000, "a" * 200_000, "\\[\\" * 50_000, "<a b=" * 40_000,
         "a\u0327\u0301" * 60_000, "(" * 50_000, "다." * 10_000, "\u1100\u1161" * 50_000, "```" * 30_001, "aa-" * 60_000,
         GOOD * 3_000, "가\n" * 20_000]  # fmt: skip


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_no_text_takes_longer_than_a_row_may(text):
    begin = time.process_time()
    assert of(text, scoring="share").status == "scored"
    assert time.process_time() - begin < 4


def test_the_workers_are_warm_within_their_memory_and_agree_with_this_process():
    texts = [
        GOOD,
        "우리는 갔습니다. 그래서 돼요.",
        "English only.",
        "",
        "오늘은날씨가좋아서공원에갔습니다.",
        "因此 합니다.",
    ]
    items = [ScoreItem("", "", text, {}) for text in texts] * 4
    with VerifierPool([ALL], 2, 5.0) as pool:
        begin = time.monotonic()
        assert pool.score(items[:1], lambda done, total: None)[0][0].reward == 1.0
        assert time.monotonic() - begin < 2, "the model was read for the first row, not at the start"
        found = pool.score(items, lambda done, total: None)
    assert [row[0] for row in found] == [korean.verify(ALL, item) for item in items]
