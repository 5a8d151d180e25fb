"""The speech level (상대 높임법) of Korean sentences, read from their endings."""

from collections.abc import Iterable, Sequence

from tasks.verifiers.morphemes import Morpheme, Sentence

LEVELS = ("hapsyo", "haeyo", "hae", "haera")
Fitting = frozenset[str]
"""The levels that an ending fits; some belong to two. Empty: an old level (하오체, 하게체) that is none of the four."""

FORMAL: Fitting = frozenset({"hapsyo"})
POLITE: Fitting = frozenset({"haeyo"})
EITHER_POLITE: Fitting = frozenset({"hapsyo", "haeyo"})
CASUAL: Fitting = frozenset({"hae"})
PLAIN: Fitting = frozenset({"haera"})
EITHER_CASUAL: Fitting = frozenset({"hae", "haera"})
OLD: Fitting = frozenset()

NOTES = ("음", "기", "\u11b7")
"""-음, -기, -ㅁ: a note, which shows no level."""
CONNECTIVES = ("고", "며", "면", "면서", "지만", "거나", "어서", "도록")
REASONS = ("니까", "으니까")
"""A sentence that breaks off goes on elsewhere, or Kiwi took a comma's place for its end."""
QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "「": "」", "『": "』"}

# The first row whose beginnings and ends fit decides. \u11ab, \u11af, \u11b8 are the consonants of -ㄴ가, -ㄹ까, -ㅂ니다.
ENDINGS: tuple[tuple[tuple[str, ...], tuple[str, ...], Fitting], ...] = (
    (("\u11b8", "습", "읍", "슴"), ("",), FORMAL),
    (("",), ("니다", "소서"), FORMAL),  # -옵니다; -습니다 is above
    (("",), ("니까요",), POLITE),
    # Questions that polite texts of either level ask: -을까요, -나요, -ㄴ가요, -는지요.
    (("",), ("까요", "나요", "가요", "는지요"), EITHER_POLITE),
    (("",), ("요", "여", "죠"), POLITE),
    (("오", "소", "구려", "게"), ("오", "소", "구려", "게"), OLD),
    (("",), ("다", "는가", "은가", "던가", "\u11ab가"), PLAIN),
    (("라",), ("라",), PLAIN),
    (("",), ("을까", "\u11af까", "자", "나", "니", "냐", "구나", "어라", "렴", "마"), EITHER_CASUAL),
)
SIGNS = ("S", "W", "Z")
"""Tags of signs, emoji and addresses, and of a consonant that is put to an ending (-습니당) ..."""
NOT_KOREAN = ("SL", "SH", "SN")
"""... and, among them, of Latin, Chinese characters and numbers."""


def levels_of(sentence: Sentence) -> Fitting | None:
    """The levels that the sentence's ending fits; None when it has no ending that shows one (a noun, a number, a note), or
    is all quotation: what somebody else says keeps to a level of its own.

    Source: the endings of the four levels in use, 국립국어원, 표준국어문법론 (상대 높임법); the tags are Kiwi's.
    """
    morphemes = _without_tail(sentence.morphemes)
    if not morphemes or _is_quotation(sentence.text):
        return None
    last = morphemes[-1]
    if last.form == "요" and last.tag in ("JX", "EF"):
        before = morphemes[-2] if len(morphemes) > 1 else None
        return _fitting(before.form + "요") if before and before.tag in ("EF", "EC") else POLITE
    return _fitting(last.form) if _is_ending(last) else None


def best_level(fittings: Sequence[Fitting], levels: Iterable[str]) -> tuple[str, float]:
    """The level that most sentences fit, and their share; of equals the first.

    Raises:
        ValueError: no sentences.
    """
    if not fittings:
        raise ValueError("there is no sentence to compare")
    shares = {level: sum(level in fitting for fitting in fittings) / len(fittings) for level in levels}
    level = max(shares, key=lambda each: shares[each])
    return level, shares[level]


def _fitting(ending: str) -> Fitting:
    for beginnings, ends, fitting in ENDINGS:
        if ending.startswith(beginnings) and ending.endswith(ends):
            return fitting
    return CASUAL


def _is_quotation(text: str) -> bool:
    closing = QUOTES.get(text[:1])
    return closing is not None and text.endswith(closing)


def _is_ending(last: Morpheme) -> bool:
    if last.tag == "EC":  # Kiwi's word for an ending before a colon (-습니다:), and for -니? and -나? after -었-
        return last.form.endswith("다") or last.form in ("니", "나", "소")
    return last.tag == "EF" and last.form not in (*NOTES, *REASONS) and not last.form.endswith(CONNECTIVES)


def _without_tail(morphemes: Sequence[Morpheme]) -> Sequence[Morpheme]:
    """Up to the ending: signs after it are left out, a remark in brackets with them, and what stands after its full stop
    without being Korean (Kiwi counts it to the sentence before)."""
    end = len(morphemes)
    while end and morphemes[end - 1].tag.startswith(SIGNS) and morphemes[end - 1].tag not in NOT_KOREAN:
        end -= 1
        if morphemes[end].tag == "SSC":
            opening = next((i for i in range(end - 1, -1, -1) if morphemes[i].tag == "SSO"), None)
            end = end if opening is None or opening == 0 else opening
    last = end
    while last and morphemes[last - 1].tag.startswith(SIGNS):
        last -= 1
    is_after_full_stop = last < end and morphemes[last].tag == "SF"
    return morphemes[:last] if is_after_full_stop else morphemes[:end]
