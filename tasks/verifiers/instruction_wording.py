"""Instructions about the words of an answer: keywords, letters, case, language, punctuation, length.

A check is asked with the instruction and the text (NFC, not blank) and says whether the text follows it. "IFEval" in the
sources is instructions.py of google-research/instruction_following_eval, arXiv:2311.07911; what differs is said.
"""

import re
import unicodedata

from tasks.verifiers import instruction_kinds as kinds
from tasks.verifiers.languages import is_in
from tasks.verifiers.text_units import joined_words, paragraphs, sentences, words

COMMAS = ",，、،﹐､"
_QUOTES = "'\"‘’“”"
_FIRST_WORD = re.compile(r"[^.,?!'\"‘’“”。，？！]*")


def compare(count: int, relation: kinds.Relation, threshold: int) -> bool:
    """Whether a count stands in the relation to the threshold."""
    return count < threshold if relation == "less than" else count >= threshold


def folded(text: str) -> str:
    """For comparison without case."""
    return unicodedata.normalize("NFC", text).casefold()


def has_keywords(instruction: kinds.KeywordExistence, text: str) -> bool:
    """Every keyword stands somewhere, in any case, also inside a word (as Korean nouns do, before a particle).

    Source: IFEval, keywords:existence; there a keyword is a regular expression, here it is text.
    """
    searched = folded(text)
    return all(folded(keyword).strip() in searched for keyword in instruction.keywords)


def has_keyword_often(instruction: kinds.KeywordFrequency, text: str) -> bool:
    """The keyword's occurrences, not overlapping, in any case, also inside words, stand in the relation.

    Source: IFEval, keywords:frequency; there a keyword is a regular expression, here it is text.
    """
    count = folded(text).count(folded(instruction.keyword).strip())
    return compare(count, instruction.relation, instruction.frequency)


def has_no_forbidden_word(instruction: kinds.ForbiddenWords, text: str) -> bool:
    """None of the words stands as a whole word, in any case.

    A letter of a script without case (Korean, Japanese, Arabic) may have a particle or an article joined to it: at that
    side the word is forbidden inside a longer one too.

    Source: IFEval, keywords:forbidden_words; there words are regular expressions between word boundaries, which lets a
    Korean word with a particle pass.
    """
    searched = folded(text)
    return not any(_whole_word(folded(word).strip()).search(searched) for word in instruction.forbidden_words)


def _whole_word(word: str) -> re.Pattern[str]:
    before = r"(?<!\w)" if _parts_words(word[0]) else ""
    after = r"(?!\w)" if _parts_words(word[-1]) else ""
    return re.compile(before + re.escape(word) + after)


def _parts_words(character: str) -> bool:
    """Whether another letter beside this one makes another word of it."""
    return character == "_" or character.isdigit() or character.lower() != character.upper()


def has_letter_often(instruction: kinds.LetterFrequency, text: str) -> bool:
    """The letter's occurrences, in any case, stand in the relation; any character counts as a letter.

    Source: IFEval, keywords:letter_frequency.
    """
    count = text.lower().count(instruction.letter.lower())
    return compare(count, instruction.let_relation, instruction.let_frequency)


def is_in_language(instruction: kinds.ResponseLanguage, text: str) -> bool:
    """The text is in the language: ``languages.is_in``.

    Source: IFEval, language:response_language; there langdetect alone decides.
    """
    return is_in(text, instruction.language.strip().lower())


def has_sentences(instruction: kinds.NumSentences, text: str) -> bool:
    """The number of sentences, as ``text_units.sentences`` cuts them, stands in the relation.

    Source: IFEval, length_constraints:number_sentences; there NLTK's Punkt model cuts.
    """
    return compare(len(sentences(text)), instruction.relation, instruction.num_sentences)


def has_words(instruction: kinds.NumWords, text: str) -> bool:
    r"""The number of words (runs of \w) stands in the relation.

    Source: IFEval, length_constraints:number_words.
    """
    return compare(len(words(text)), instruction.relation, instruction.num_words)


def has_paragraphs(instruction: kinds.NumParagraphs, text: str) -> bool:
    """Exactly so many paragraphs stand between dividers ***; one without text is wrong except at either end.

    Source: IFEval, length_constraints:number_paragraphs.
    """
    parts = text.split("***")
    if any(not part.strip() for part in parts[1:-1]):
        return False
    return sum(bool(part.strip()) for part in parts) == instruction.num_paragraphs


def has_first_word(instruction: kinds.NthParagraphFirstWord, text: str) -> bool:
    """There are exactly so many paragraphs (between blank lines), and the n-th begins with the word, in any case.

    Quotes before the word and what follows its first punctuation do not count.

    Source: IFEval, length_constraints:nth_paragraph_first_word; there more than one blank line moves the count.
    """
    found = paragraphs(text)
    if len(found) != instruction.num_paragraphs or instruction.nth_paragraph > len(found):
        return False
    first = found[instruction.nth_paragraph - 1].split(maxsplit=1)[0].lstrip(_QUOTES)
    match = _FIRST_WORD.match(first)
    assert match is not None  # it matches the empty text too
    return folded(match.group()) == folded(instruction.first_word).strip()


def has_capital_words(instruction: kinds.CapitalWordFrequency, text: str) -> bool:
    """The number of words in capitals alone ("I" and "A" too; WELL-KNOWN is one) stands in the relation.

    Source: IFEval, change_case:capital_word_frequency; there NLTK cuts the words.
    """
    count = sum(word.isupper() for word in joined_words(text))
    return compare(count, instruction.capital_relation, instruction.capital_frequency)


def is_english_capital(_instruction: kinds.EnglishCapital, text: str) -> bool:
    """The text is in English, and no letter of it is a small one.

    Source: IFEval, change_case:english_capital.
    """
    return text.isupper() and is_in(text, "en")


def is_english_lowercase(_instruction: kinds.EnglishLowercase, text: str) -> bool:
    """The text is in English, and no letter of it is a capital.

    Source: IFEval, change_case:english_lowercase.
    """
    return text.islower() and is_in(text, "en")


def has_no_comma(_instruction: kinds.NoComma, text: str) -> bool:
    """No comma stands in the text, nor one of another script.

    Source: IFEval, punctuation:no_comma; there the ASCII comma alone.
    """
    return not any(comma in text for comma in COMMAS)
