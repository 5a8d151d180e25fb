"""The checks by their instructions."""

from collections.abc import Callable
from typing import Any

from tasks.verifiers import instruction_kinds as kinds
from tasks.verifiers import instruction_layout as layout
from tasks.verifiers import instruction_wording as wording

CHECKS: dict[type, Callable[[Any, str], bool]] = {
    kinds.KeywordExistence: wording.has_keywords,
    kinds.KeywordFrequency: wording.has_keyword_often,
    kinds.ForbiddenWords: wording.has_no_forbidden_word,
    kinds.LetterFrequency: wording.has_letter_often,
    kinds.ResponseLanguage: wording.is_in_language,
    kinds.NumSentences: wording.has_sentences,
    kinds.NumParagraphs: wording.has_paragraphs,
    kinds.NumWords: wording.has_words,
    kinds.NthParagraphFirstWord: wording.has_first_word,
    kinds.NumPlaceholders: layout.has_placeholders,
    kinds.Postscript: layout.has_postscript,
    kinds.NumBullets: layout.has_bullets,
    kinds.ConstrainedResponse: layout.is_one_option,
    kinds.NumHighlights: layout.has_highlights,
    kinds.MultipleSections: layout.has_sections,
    kinds.JsonFormat: layout.is_json,
    kinds.Title: layout.has_title,
    kinds.TwoResponses: layout.has_two_responses,
    kinds.RepeatPrompt: layout.repeats_prompt,
    kinds.EndPhrase: layout.ends_with_phrase,
    kinds.Quotation: layout.is_quoted,
    kinds.CapitalWordFrequency: wording.has_capital_words,
    kinds.EnglishCapital: wording.is_english_capital,
    kinds.EnglishLowercase: wording.is_english_lowercase,
    kinds.NoComma: wording.has_no_comma,
}
