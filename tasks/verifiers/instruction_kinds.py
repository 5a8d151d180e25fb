"""The kinds of instructions that a rule can check, with what each needs to know.

The names are IFEval's (arXiv:2311.07911, table 1), so that its rows are read as they stand.
"""

from typing import Annotated, Literal

from pydantic import Field

from tasks.values.frozen import Frozen

Relation = Literal["less than", "at least"]
Text = Annotated[str, Field(pattern=r"\S")]
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]


class KeywordExistence(Frozen):
    id: Literal["keywords:existence"]
    keywords: Texts


class KeywordFrequency(Frozen):
    id: Literal["keywords:frequency"]
    keyword: Text
    frequency: Count
    relation: Relation


class ForbiddenWords(Frozen):
    id: Literal["keywords:forbidden_words"]
    forbidden_words: Texts


class LetterFrequency(Frozen):
    id: Literal["keywords:letter_frequency"]
    letter: Annotated[str, Field(min_length=1, max_length=1)]
    let_frequency: Count
    let_relation: Relation


class ResponseLanguage(Frozen):
    id: Literal["language:response_language"]
    language: Text
    """ISO 639-1, for example "ko"."""


class NumSentences(Frozen):
    id: Literal["length_constraints:number_sentences"]
    num_sentences: Count
    relation: Relation


class NumParagraphs(Frozen):
    id: Literal["length_constraints:number_paragraphs"]
    num_paragraphs: Number


class NumWords(Frozen):
    id: Literal["length_constraints:number_words"]
    num_words: Count
    relation: Relation


class NthParagraphFirstWord(Frozen):
    id: Literal["length_constraints:nth_paragraph_first_word"]
    num_paragraphs: Number
    nth_paragraph: Number
    first_word: Text


class NumPlaceholders(Frozen):
    id: Literal["detectable_content:number_placeholders"]
    num_placeholders: Count


class Postscript(Frozen):
    id: Literal["detectable_content:postscript"]
    postscript_marker: Text


class NumBullets(Frozen):
    id: Literal["detectable_format:number_bullet_lists"]
    num_bullets: Count


class ConstrainedResponse(Frozen):
    id: Literal["detectable_format:constrained_response"]


class NumHighlights(Frozen):
    id: Literal["detectable_format:number_highlighted_sections"]
    num_highlights: Count


class MultipleSections(Frozen):
    id: Literal["detectable_format:multiple_sections"]
    section_spliter: Text
    """Spelt as in IFEval."""
    num_sections: Count


class JsonFormat(Frozen):
    id: Literal["detectable_format:json_format"]


class Title(Frozen):
    id: Literal["detectable_format:title"]


class TwoResponses(Frozen):
    id: Literal["combination:two_responses"]


class RepeatPrompt(Frozen):
    id: Literal["combination:repeat_prompt"]
    prompt_to_repeat: Text


class EndPhrase(Frozen):
    id: Literal["startend:end_checker"]
    end_phrase: Text


class Quotation(Frozen):
    id: Literal["startend:quotation"]


class CapitalWordFrequency(Frozen):
    id: Literal["change_case:capital_word_frequency"]
    capital_frequency: Count
    capital_relation: Relation


class EnglishCapital(Frozen):
    id: Literal["change_case:english_capital"]


class EnglishLowercase(Frozen):
    id: Literal["change_case:english_lowercase"]


class NoComma(Frozen):
    id: Literal["punctuation:no_comma"]


Instruction = Annotated[
    KeywordExistence
    | KeywordFrequency
    | ForbiddenWords
    | LetterFrequency
    | ResponseLanguage
    | NumSentences
    | NumParagraphs
    | NumWords
    | NthParagraphFirstWord
    | NumPlaceholders
    | Postscript
    | NumBullets
    | ConstrainedResponse
    | NumHighlights
    | MultipleSections
    | JsonFormat
    | Title
    | TwoResponses
    | RepeatPrompt
    | EndPhrase
    | Quotation
    | CapitalWordFrequency
    | EnglishCapital
    | EnglishLowercase
    | NoComma,
    Field(discriminator="id"),
]
