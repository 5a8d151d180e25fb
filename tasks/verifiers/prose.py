"""The prose of a completion: what is left without code, mathematics, tags and addresses."""

import re
import unicodedata

JAMO_RUN = re.compile("[가-힣]?[\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]+")
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
SURROGATE = re.compile("[\ud800-\udfff]")
WORD = r"[A-Za-z]{2,}"

# Each is linear in the length of the text: what may repeat without bound ends at its own beginning, or with the text.
LEFT_OUT = (
    re.compile(r"```.*?(?:```|\Z)", re.DOTALL),
    re.compile(r"`[^`\n]+`"),
    re.compile(r"(?:https?://|www\.)[!-~]+"),
    re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9.-]{1,64}"),
    re.compile(r"<\|[\w.-]{1,40}\|>"),
    re.compile(r"</?[A-Za-z][\w:.-]{0,40}(?:\s[^<>=]{1,40}=[^<>]{0,200})?\s?/?>"),
)
FORMULAS = (
    re.compile(r"\$\$([^$]+)\$\$"),
    re.compile(r"\$([^$\n]+)\$"),
    re.compile(r"\\\((.*?)(?:\\\)|$)", re.MULTILINE),
    re.compile(r"\\\[(.*?)(?:\\\]|\Z)", re.DOTALL),
)
LATEX_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox)\b")
LATEX_COMMAND = re.compile(r"\\[A-Za-z]+")
SPEAKS = re.compile(rf"{WORD}[ ,]+{WORD}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


def prose_of(text: str) -> str:
    r"""``text`` without code, formulas, tags, URLs and mail addresses, each replaced by a space; Hangul composed.

    What stands between dollar signs is a formula only when it holds no words of a language ("$5에 사서 $8에" is prose, and so is
    a sentence that was put into a formula to hide it). Of a formula that has words, only the LaTeX commands are left out.
    Lone surrogates become U+FFFD; what has no width (U+200B and its like) goes, for it would hide a word's parts from each other.
    """
    text = INVISIBLE.sub("", SURROGATE.sub("\ufffd", text))
    # Only Hangul: NFC of the whole text is quadratic in a run of mixed combining marks (minutes for 200,000 of them).
    text = JAMO_RUN.sub(lambda run: unicodedata.normalize("NFC", run[0]), text)
    for pattern in LEFT_OUT:
        text = pattern.sub(" ", text)
    for pattern in FORMULAS:
        text = pattern.sub(_without_formula, text)
    return LATEX_COMMAND.sub(" ", text)


def _without_formula(match: re.Match[str]) -> str:
    words = LATEX_COMMAND.sub(" ", LATEX_TEXT.sub("\\\\", match[1]))
    return match[0] if SPEAKS.search(words) else " "
