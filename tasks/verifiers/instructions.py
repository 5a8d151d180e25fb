"""Instructions that a rule can check."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tasks.verifiers.extraction import after_reasoning
from tasks.verifiers.instruction_checks import CHECKS
from tasks.verifiers.instruction_kinds import Instruction, NthParagraphFirstWord, ResponseLanguage
from tasks.verifiers.languages import SCRIPTS
from tasks.verifiers.strict_json import NotJson, read_json
from tasks.verifiers.text_kinds import InstructionsVerifier
from tasks.verifiers.verdict import ScoreItem, Verdict, scored, unscored

_INSTRUCTION: TypeAdapter[Any] = TypeAdapter(Instruction)


def verify(config: InstructionsVerifier, item: ScoreItem) -> Verdict:
    """1.0 when what follows the reasoning follows every instruction, else 0.0; with scoring "fraction", their share.

    Strict mode asks the text as it is. Loose mode takes an instruction as followed when one of eight texts follows it:
    with or without its asterisks, and with or without its first line, its last line, or both (a greeting, a heading). A
    text that is blank follows nothing.

    Source: IFEval, arXiv:2311.07911, section 2.1 (prompt level: "all"; instruction level: "fraction").
    """
    try:
        instructions = read_instructions(item.answer, item.metadata)
    except UnreadableGold as error:
        return unscored(str(error))
    text = unicodedata.normalize("NFC", after_reasoning(item.completion, config.reasoning_end))
    texts = list(variants(text)) if config.mode == "loose" else [text]
    texts = [each for each in dict.fromkeys(texts) if each.strip()]
    broken = [each.id for each in instructions if not any(CHECKS[type(each)](each, each_text) for each_text in texts)]
    if not broken:
        return scored(1.0)
    followed = len(instructions) - len(broken)
    reason = f"{followed} of {len(instructions)} are followed; not {', '.join(broken)}"[:300]
    return scored(followed / len(instructions) if config.scoring == "fraction" else 0.0, reason)


class UnreadableGold(ValueError):
    """Nothing says which instructions to check, or one of them is not known; the message names it."""


def read_instructions(answer: str, metadata: Mapping[str, Any]) -> list[Any]:
    """The instructions of a row.

    They stand in the answer, as ``{"instructions": [{"id": "keywords:existence", "keywords": ["a"]}, ...]}`` or as a row
    of IFEval, ``{"instruction_id_list": [...], "kwargs": [...]}`` (other keys are not looked at); where the answer is
    blank, in the prompt's metadata in the same two forms. An argument that is null does not stand there.

    Raises:
        UnreadableGold: none of that, no instruction, an id that is not known, a language that is not, or arguments that
            are missing, too many or of another type.
    """
    row: Any = metadata
    if answer.strip():
        try:
            row = read_json(answer)
        except NotJson as error:
            raise UnreadableGold(f"the gold answer is not JSON: {error}") from None
    if not isinstance(row, Mapping):
        raise UnreadableGold("the gold answer is not an object")
    given = row.get("instructions")
    if given is None:
        given = _ifeval_row(row)
    if not isinstance(given, list) or not given:
        raise UnreadableGold("the row has no list of instructions")
    return [_instruction(each) for each in given]


def _ifeval_row(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    ids, arguments = row.get("instruction_id_list"), row.get("kwargs")
    if not isinstance(ids, list) or not isinstance(arguments, list) or len(ids) != len(arguments):
        raise UnreadableGold("the row has neither instructions nor as many kwargs as it has ids in instruction_id_list")
    if not all(each is None or isinstance(each, Mapping) for each in arguments):
        raise UnreadableGold("kwargs is not a list of objects")
    return [{**(each or {}), "id": name} for name, each in zip(ids, arguments, strict=True)]


def _instruction(given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise UnreadableGold("an instruction is not an object")
    name = given.get("id")
    try:
        found = _INSTRUCTION.validate_python({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"].startswith("union_tag"):
            raise UnreadableGold(f"no check knows the instruction {str(name)[:80]!r}") from None
        place = ".".join(str(part) for part in first["loc"][1:])
        raise UnreadableGold(f"{name} can not be read: {place[:80]}: {first['msg'][:120]}") from None
    if isinstance(found, ResponseLanguage) and found.language.strip().lower() not in SCRIPTS:
        raise UnreadableGold(f"{name} can not be read: no rule tells the language {found.language[:40]!r}")
    if isinstance(found, NthParagraphFirstWord) and found.nth_paragraph > found.num_paragraphs:
        raise UnreadableGold(f"{name} can not be read: paragraph {found.nth_paragraph} of {found.num_paragraphs}")
    return found


def variants(text: str) -> Iterator[str]:
    """The eight texts of the loose mode, the text itself first.

    Source: IFEval, evaluation_lib.py.
    """
    lines = text.split("\n")
    for first, last in ((0, None), (1, None), (0, -1), (1, -1)):
        cut = text if (first, last) == (0, None) else "\n".join(lines[first:last]).strip()
        yield cut
        yield cut.replace("*", "")
