"""Is a completion written in good Korean?"""

from collections.abc import Callable

from tasks.verifiers import morphemes
from tasks.verifiers.extraction import after_reasoning
from tasks.verifiers.prose import prose_of
from tasks.verifiers.scripts import count_scripts, hangul_share, latin_words
from tasks.verifiers.spacing import compare_spaces
from tasks.verifiers.speech_levels import LEVELS, best_level, levels_of
from tasks.verifiers.text_kinds import MORPHEME_CHECKS, KoreanVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict, failed, scored

MAX_CHARACTERS = 1 << 20
"""What follows is not looked at; no completion is this long."""
SENTENCE_ENDS = (".", "!", "?", "\u2026", "。", "！", "？")


def verify(config: KoreanVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the prose passes every check (or the share of the checks that it passes), else 0.0.

    A text that has no letters, or fails ``hangul``, gets 0.0: a number alone is an answer, but no Korean.

    Source: the language consistency reward of DeepSeek-R1, arXiv:2501.12948, section 2.3.2 (share of words in the target
    language); the other checks are ours.
    """
    if MORPHEME_CHECKS.intersection(config.checks):
        try:
            morphemes.load()  # before anything else: a worker is warmed up by a text without Korean
        except ImportError:
            return failed(morphemes.CURE)
    text = prose_of(after_reasoning(item.completion[:MAX_CHARACTERS], config.reasoning_end))
    if "hangul" in config.checks and (fault := _hangul(config, text, item.is_truncated)):
        return scored(0.0, fault)
    faults = {check: CHECKS[check](config, text, item.is_truncated) for check in config.checks}
    passed = sum(not fault for fault in faults.values()) / len(faults)
    reason = "; ".join(fault for fault in faults.values() if fault)
    return scored(passed if config.scoring == "share" else float(passed == 1.0), reason)


def _hangul(config: KoreanVerifier, text: str, is_truncated: bool) -> str:
    """What is wrong with the share of Hangul, "" for nothing; so do the other checks."""
    share = hangul_share(count_scripts(text))
    if share is None:
        return "there are no letters, so nothing is written in Korean"
    return "" if share >= config.min_hangul_share else f"Hangul share {share:.2f}"


def _scripts(config: KoreanVerifier, text: str, is_truncated: bool) -> str:
    counts = count_scripts(text)
    foreign = {
        name: number for name, number in counts.items() if name not in ("hangul", "latin", *config.allowed_scripts)
    }
    if sum(foreign.values()) > config.max_foreign_letters:
        return "letters of other scripts: " + ", ".join(f"{name} {number}" for name, number in sorted(foreign.items()))
    words = latin_words(text, {word.lower() for word in config.allowed_words})
    if words.longest_run > config.max_latin_run:
        return f"{words.longest_run} Latin words in a row"
    return "" if words.share <= config.max_latin_share else f"share of Latin words {words.share:.2f}"


def _speech_level(config: KoreanVerifier, text: str, is_truncated: bool) -> str:
    sentences = list(morphemes.sentences_of(text[: config.max_analysed_characters]))
    is_cut = is_truncated or len(text) > config.max_analysed_characters or text.rstrip().endswith("\ufffd")
    if is_cut and sentences and not sentences[-1].text.endswith(SENTENCE_ENDS):
        sentences.pop()  # its ending is not there, or only some bytes of it
    fittings = [fitting for sentence in sentences if (fitting := levels_of(sentence)) is not None]
    if not fittings:
        return "no sentence has an ending that shows a speech level"
    level, share = best_level(fittings, LEVELS if config.speech_level == "any" else (config.speech_level,))
    return "" if share >= config.min_level_share else f"{level} in {share:.2f} of {len(fittings)} sentences"


def _spacing(config: KoreanVerifier, text: str, is_truncated: bool) -> str:
    spaces = compare_spaces(text[: config.max_analysed_characters], morphemes.respaced)
    if spaces.error_share <= config.max_spacing_errors:
        return ""
    return f"{spaces.num_wrong} of {spaces.num_spaces} spaces are wrong"


CHECKS: dict[str, Callable[[KoreanVerifier, str, bool], str]] = {
    "hangul": _hangul,
    "scripts": _scripts,
    "speech_level": _speech_level,
    "spacing": _spacing,
}
