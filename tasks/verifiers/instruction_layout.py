"""Instructions about the parts of an answer: placeholders, bullets, sections, a title, JSON, its beginning and its end.

A check is asked with the instruction and the text (NFC, not blank) and says whether the text follows it. "IFEval" in the
sources is instructions.py of google-research/instruction_following_eval, arXiv:2311.07911; what differs is said.
"""

import re

from tasks.verifiers import instruction_kinds as kinds
from tasks.verifiers.instruction_wording import folded
from tasks.verifiers.strict_json import NotJson, read_json

OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_PLACEHOLDER = re.compile(r"\[([^\[\]\n]+)\]")
_BULLET = re.compile(r"[*-][ \t]+\S")
_HIGHLIGHT = re.compile(r"\*\*(?![\s*])([^\n*]+)(?<!\s)\*\*|\*(?![\s*])([^\n*]+)(?<!\s)\*")
_MARKS = " \t#*_>"
_FENCE = re.compile(r"```(?:json)?[ \t]*\n?", re.IGNORECASE)


def has_placeholders(instruction: kinds.NumPlaceholders, text: str) -> bool:
    """At least so many [placeholders] with something in them stand in the text.

    Source: IFEval, detectable_content:number_placeholders; there [] counts too.
    """
    count = sum(bool(inner.strip()) for inner in _PLACEHOLDER.findall(text))
    return count >= instruction.num_placeholders


def has_postscript(instruction: kinds.Postscript, text: str) -> bool:
    """A line begins with the marker, in any case, and a word follows it there or later.

    Marks of Markdown before it do not count; inside the marker white space does not ("P. S." is "P.S.").

    Source: IFEval, detectable_content:postscript; there the marker may stand anywhere, with nothing after it.
    """
    marker = re.compile(
        r"[ \t]?".join(re.escape(each) for each in folded(instruction.postscript_marker) if each != " ")
    )
    searched = folded(text)
    last = next((position for position in range(len(searched), 0, -1) if searched[position - 1].isalnum()), 0)
    begin = 0
    for line in searched.splitlines(keepends=True):
        start = begin + len(line) - len(line.lstrip(_MARKS))
        match = marker.match(searched, start)
        if match is not None and match.end() < last:
            return True
        begin += len(line)
    return False


def has_bullets(instruction: kinds.NumBullets, text: str) -> bool:
    """Exactly so many lines are bullets: * or -, a space, and something.

    Source: IFEval, detectable_format:number_bullet_lists; there the space may be missing, so that --- and *word* count.
    """
    count = sum(_BULLET.match(line.lstrip()) is not None for line in text.split("\n"))
    return count == instruction.num_bullets


def is_one_option(_instruction: kinds.ConstrainedResponse, text: str) -> bool:
    """Exactly one of the three answers of IFEval stands in the text.

    Source: IFEval, detectable_format:constrained_response; there one or more.
    """
    return sum(option in text for option in OPTIONS) == 1


def has_highlights(instruction: kinds.NumHighlights, text: str) -> bool:
    """At least so many parts are *highlighted* or **highlighted**, on one line, without space inside the asterisks.

    Source: IFEval, detectable_format:number_highlighted_sections; there "* a * b" counts as one too.
    """
    return len(_HIGHLIGHT.findall(text)) >= instruction.num_highlights


def has_sections(instruction: kinds.MultipleSections, text: str) -> bool:
    """At least so many different numbers stand after the section's word at the beginning of a line.

    Source: IFEval, detectable_format:multiple_sections; there anywhere, and "Section 1" twice counts twice.
    """
    mark = re.compile(re.escape(instruction.section_spliter.strip()) + r"[ \t]?(\d{1,9})(?!\d)")
    matches = (mark.match(line.lstrip(_MARKS)) for line in text.split("\n"))
    return len({int(match[1]) for match in matches if match is not None}) >= instruction.num_sections


def is_json(_instruction: kinds.JsonFormat, text: str) -> bool:
    """The whole text is a JSON object or list, a code fence around it or not.

    Source: IFEval, detectable_format:json_format; there a lone number or string is enough, and NaN is JSON.
    """
    text = text.strip()
    fence = _FENCE.match(text)
    if fence is not None:
        text = text[fence.end() :].removesuffix("```")
    try:
        return isinstance(read_json(text.strip()), (dict, list))
    except NotJson:
        return False


def has_title(_instruction: kinds.Title, text: str) -> bool:
    """A title stands in <<double angular brackets>> on one line.

    Source: IFEval, detectable_format:title.
    """
    for line in text.split("\n") if "<<" in text else ():
        begin, end = line.find("<<"), line.rfind(">>")
        if 0 <= begin < end and line[begin:end].strip("<> \t\r"):
            return True
    return False


def has_two_responses(_instruction: kinds.TwoResponses, text: str) -> bool:
    """Two different responses stand on either side of ******; a part without text is wrong except at either end.

    Source: IFEval, combination:two_responses.
    """
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


def repeats_prompt(instruction: kinds.RepeatPrompt, text: str) -> bool:
    """The text begins with the request, in any case, and goes on after it.

    Source: IFEval, combination:repeat_prompt; there nothing need follow.
    """
    request, given = folded(instruction.prompt_to_repeat).strip(), folded(text).strip()
    return given.startswith(request) and len(given) > len(request)


def ends_with_phrase(instruction: kinds.EndPhrase, text: str) -> bool:
    """The text ends with the phrase, in any case; white space and double quotes after it do not count.

    Source: IFEval, startend:end_checker.
    """
    return folded(text).strip().strip('"').endswith(folded(instruction.end_phrase).strip())


def is_quoted(_instruction: kinds.Quotation, text: str) -> bool:
    """Double quotation marks, straight or curly, stand around the text, and something between them.

    Source: IFEval, startend:quotation; there "" is enough, and curly ones are not.
    """
    text = text.strip()
    return text[:1] + text[-1:] in ('""', "“”") and bool(text[1:-1].strip())
