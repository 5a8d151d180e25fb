"""Rows of the step_labels table from the solutions of a file."""

import hashlib
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from transformers import PreTrainedTokenizerBase

from tasks.curriculum.config import PromptFormat
from tasks.curriculum.ingest import written
from tasks.curriculum.keys import prompt_key
from tasks.curriculum.raw import RawPrompt
from tasks.reward.step_files import StepSolution
from tasks.reward.step_kinds import StepFileConfig
from tasks.reward.step_plan import PrefixLengths
from tasks.rollout.prompting import decode_completion, encode_prompt, eos_token_ids, prefix_lengths
from tasks.verifiers.steps import on_tokens

UNKNOWN = 2.0
"""Stands for a step without a label while steps are put on tokens: above every label, so that it never decides."""


@dataclass(frozen=True)
class Coding:
    """The policy's tokenizer, as far as it is needed here.

    encode_prompt: (prompt, is_chat) -> ids, as for rollouts. encode: text -> ids, nothing added. decode: ids -> text, the
    final end-of-sequence id dropped. eos_id: None when the tokenizer has none.
    """

    encode_prompt: Callable[[str, bool], list[int]]
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    prefix_lengths: PrefixLengths
    eos_id: int | None


def coding_of(tokenizer: PreTrainedTokenizerBase) -> Coding:
    """How the policy's rollouts are written and read with this tokenizer."""
    eos_ids = eos_token_ids(None, tokenizer)
    return Coding(
        encode_prompt=lambda prompt, is_chat: encode_prompt(tokenizer, prompt, is_chat),
        encode=lambda text: [int(each) for each in tokenizer(text, add_special_tokens=False)["input_ids"]],
        decode=lambda ids: decode_completion(tokenizer, ids, eos_ids),
        prefix_lengths=prefix_lengths(tokenizer, eos_ids),
        eos_id=tokenizer.eos_token_id,
    )


def file_label_rows(
    solutions: Sequence[StepSolution],
    config: StepFileConfig,
    style: PromptFormat,
    coding: Coding,
    *,
    heldout_keys: Collection[str],
    origin_iteration: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The solutions in the ids that the policy would have written, one row each; those of held-out prompts are left out.

    The steps are joined by ``config.joined_by``, which belongs to the step before it; a finished solution ends with the
    end-of-sequence id, as a finished rollout does, and its last step ends there. Of steps that end in one token the
    smallest known label counts. Text is brought to NFC, half surrogate pairs to U+FFFD.

    Raises:
        ValueError: the tokenizer can not write a prompt or a solution; names file, line and cure.
    """
    rows: list[dict[str, Any]] = []
    heldout = merged = 0
    for number, solution in enumerate(solutions):
        try:
            prompt, is_chat = written(RawPrompt(_storable(solution.prompt), "", {}), style)
            key = prompt_key(prompt)
            if key in heldout_keys:
                heldout += 1
                continue
            prompt_ids = _encoded(lambda: coding.encode_prompt(prompt, is_chat), prompt)  # noqa: B023  # called at once
            ids, known, num_merged = _placed(solution, config.joined_by, coding)
        except ValueError as error:
            raise ValueError(
                f"line {solution.line} of {config.path}: {error}; remove the line, or take a policy whose tokenizer has "
                "these characters"
            ) from error
        merged += num_merged
        rows.append(
            {
                "label_id": hashlib.sha256(f"file:{solution.line}:{number}".encode()).hexdigest()[:24],
                "prompt_id": key[:16],
                "prompt_key": key,
                "group_id": f"file-{key[:16]}",
                "prompt_token_ids": prompt_ids,
                "completion_token_ids": ids,
                "step_ends": [end for end, _ in known],
                "step_labels": [label for _, label in known],
                "num_continuations": 0,
                "origin_iteration": origin_iteration,
            }
        )
    return rows, {
        "num_file_rows": float(len(rows)),
        "num_file_heldout": float(heldout),
        "num_file_merged_steps": float(merged),
        "num_file_steps": float(sum(len(row["step_ends"]) for row in rows)),
    }


def _placed(solution: StepSolution, joined_by: str, coding: Coding) -> tuple[list[int], list[tuple[int, float]], int]:
    """The solution's ids, (last token, label) of the steps that have a label, and how many steps were merged."""
    texts = [_storable(step) + joined_by for step in solution.steps[:-1]] + [_storable(solution.steps[-1])]
    text = "".join(texts)
    ids = _encoded(lambda: coding.encode(text), text)
    if coding.decode(ids) != text:
        raise ValueError(f"the tokenizer does not give the text back: {text[:60]!r}")
    if solution.is_finished and coding.eos_id is not None:
        ids = [*ids, coding.eos_id]
    labels = [UNKNOWN if label is None else label for label in solution.labels]
    steps = list(zip(accumulate(map(len, texts)), labels, strict=True))
    placed, merged = on_tokens(steps, len(ids), coding.prefix_lengths(ids))
    known = [(end, label) for end, label in zip(placed.ends, placed.rewards, strict=True) if label != UNKNOWN]
    return ids, known, merged


def _encoded(encode: Callable[[], list[int]], text: str) -> list[int]:
    try:
        return encode()
    except Exception as error:  # a tokenizer without an unknown token raises bare Exception
        raise ValueError(f"the policy's tokenizer can not encode {text[:60]!r}: {error}") from error


def _storable(text: str) -> str:
    return unicodedata.normalize("NFC", text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
