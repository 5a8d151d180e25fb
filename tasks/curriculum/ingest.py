"""Make a source's prompts ready: written down, de-duplicated, tokenised, split."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from tasks.curriculum.config import PromptFormat
from tasks.curriculum.keys import heldout_rank, normalise, prompt_key
from tasks.curriculum.raw import RawPrompt

Encode = Callable[[str, bool], list[int]]


def ingest(
    raw: Sequence[RawPrompt],
    style: PromptFormat,
    encode: Encode,
    *,
    num_heldout: int,
    max_prompt_tokens: int,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the prompts table in the order of the source, and what was dropped.

    Two prompts with one key are one prompt: the first is kept. When their answers differ, all of them are dropped, since
    no one can say which answer is right. Prompts of more than ``max_prompt_tokens`` tokens are dropped. Text that is not
    valid UTF-8 (half a surrogate pair, as JSON escapes can spell it) is repaired and counted.

    Args:
        encode: (prompt, is_chat) -> token ids.

    Raises:
        ValueError: fewer prompts are left than ``num_heldout`` + 1, a prompt that the policy's tokenizer can not encode, or
            a template for prompts that are chat messages already.
    """
    first, answers, repaired = _distinct(raw, style)
    rows: list[dict[str, Any]] = []
    too_long = 0
    for key, (text, is_chat, prompt) in first.items():
        if len(answers[key]) > 1:
            continue
        ids = _encoded(encode, text, is_chat)
        if len(ids) > max_prompt_tokens:
            too_long += 1
            continue
        rows.append(_row(key, text, is_chat, ids, prompt))
    if len(rows) <= num_heldout:
        raise ValueError(
            f"{len(rows)} usable prompts ({len(raw)} read, {too_long} longer than {max_prompt_tokens} tokens) leave none "
            f"to train on beside {num_heldout} held out; lower prompts.num_heldout or give more prompts"
        )
    assert len({row["prompt_id"] for row in rows}) == len(rows), "two prompt keys share their first 16 digits"
    heldout = set(heldout_keys([row["prompt_key"] for row in rows], num_heldout))
    rows = [{**row, "split": "heldout" if row["prompt_key"] in heldout else "train"} for row in rows]
    conflicts = sum(len(found) > 1 for found in answers.values())
    return rows, {
        "num_read": float(len(raw)),
        "num_duplicates": float(len(raw) - len(first)),
        "num_conflicting": float(conflicts),
        "num_too_long": float(too_long),
        "num_repaired": float(repaired),
        "num_train": float(len(rows) - num_heldout),
        "num_heldout": float(num_heldout),
    }


def _row(key: str, text: str, is_chat: bool, ids: list[int], prompt: RawPrompt) -> dict[str, Any]:
    return {
        "prompt_id": key[:16],
        "prompt_key": key,
        "split": "train",
        "prompt": text,
        "is_chat": is_chat,
        "prompt_token_ids": ids,
        "answer": prompt.answer,
        "metadata": json.dumps(prompt.metadata, ensure_ascii=False, sort_keys=True, default=str),
    }


def _distinct(
    raw: Sequence[RawPrompt], style: PromptFormat
) -> tuple[dict[str, tuple[str, bool, RawPrompt]], dict[str, set[str]], int]:
    """By prompt key: the first prompt as it is written down, and all answers given; and how many texts were repaired."""
    answers: dict[str, set[str]] = {}
    first: dict[str, tuple[str, bool, RawPrompt]] = {}
    repaired = 0
    for prompt in raw:
        text, is_chat = written(prompt, style)
        text, is_repaired = _storable(text)
        repaired += is_repaired
        key = prompt_key(text)
        answers.setdefault(key, set()).add(normalise(prompt.answer))
        first.setdefault(key, (text, is_chat, prompt))
    return first, answers, repaired


def written(prompt: RawPrompt, style: PromptFormat) -> tuple[str, bool]:
    """The text that is kept, and whether it is a chat (JSON of messages, keys sorted)."""
    if isinstance(prompt.prompt, str):
        text = style.template.replace("{prompt}", prompt.prompt)
        if style.style == "plain":
            return text, False
        messages = [{"role": "user", "content": text}]
    else:
        if style.template != "{prompt}":
            raise ValueError(
                f"prompts.format.template {style.template!r} is for text, but {str(prompt.prompt)[:80]} is a list of chat "
                "messages; remove the template"
            )
        messages = prompt.prompt
    if style.system and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": style.system}, *messages]
    messages = [{**message, "content": normalise(message["content"])} for message in messages]
    return json.dumps(messages, ensure_ascii=False, sort_keys=True), True


def _storable(text: str) -> tuple[str, bool]:
    """Valid UTF-8 text and whether it had to be changed: pairs of surrogates joined, lone ones replaced by U+FFFD."""
    valid = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return valid, valid != text


def _encoded(encode: Encode, text: str, is_chat: bool) -> list[int]:
    try:
        return encode(text, is_chat)
    except Exception as error:  # a tokenizer without an unknown token raises bare Exception
        raise ValueError(f"the policy's tokenizer can not encode prompt {text[:80]!r}: {error}") from error


def heldout_keys(keys: Sequence[str], num_heldout: int) -> list[str]:
    """The ``num_heldout`` keys whose hash is smallest: independent of their order, of the process and of the run."""
    return sorted(keys, key=heldout_rank)[:num_heldout]
