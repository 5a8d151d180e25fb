"""Between text and token ids: prompts in, completions out."""

import json
from collections.abc import Callable, Iterable, Sequence

from transformers import GenerationConfig, PreTrainedTokenizerBase

MAX_BYTES = 4
"""Of a character in UTF-8."""


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str, is_chat: bool) -> list[int]:
    """The ids that the model reads for a prompt, with exactly one beginning-of-sequence token where the model has one.

    A chat (JSON list of messages) goes through the chat template straight to ids: rendering it to text and tokenising
    that would add a second BOS with tokenizers that prepend one. Plain text is tokenised with the tokenizer's own
    special tokens, less an end-of-sequence token, which would tell the model that the text is over.

    Raises:
        ValueError: a chat without a chat template, or a prompt without any token.
    """
    if is_chat:
        if not tokenizer.chat_template:
            raise ValueError('this tokenizer has no chat template; set prompts.format.style to "plain"')
        ids = tokenizer.apply_chat_template(
            json.loads(prompt), tokenize=True, add_generation_prompt=True, return_dict=False
        )
    else:
        ids = tokenizer(prompt, add_special_tokens=True)["input_ids"]
        if ids and ids[-1] == tokenizer.eos_token_id and not _ends_with_eos_text(tokenizer, prompt):
            ids = ids[:-1]
    if not ids:
        raise ValueError(f"prompt {prompt[:60]!r} has no tokens")
    return [int(token) for token in ids]


def _ends_with_eos_text(tokenizer: PreTrainedTokenizerBase, prompt: str) -> bool:
    return bool(tokenizer.eos_token) and prompt.endswith(str(tokenizer.eos_token))


def eos_token_ids(generation_config: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a completion: those of the generation config and the tokenizer's own."""
    found: set[int] = set()
    configured = None if generation_config is None else generation_config.eos_token_id
    if configured is not None:
        found.update(configured if isinstance(configured, Iterable) else [configured])
    if tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    return frozenset(found)


def completion_length(ids: Sequence[int], eos_ids: frozenset[int]) -> int:
    """Tokens of a padded completion: up to and including the first end-of-sequence id, all of them without one.

    For engines that hand back padded rows. A pad id is never asked for: it may be an end-of-sequence id, which counts.
    """
    return next((index + 1 for index, token in enumerate(ids) if token in eos_ids), len(ids))


def decode_completion(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], eos_ids: frozenset[int]) -> str:
    """The text that a verifier sees: the whole id list decoded at once, without the final end-of-sequence token.

    That token is dropped by its id. Every other special token stays (tags may be registered as special), and an
    end-of-sequence text that the model wrote as ordinary characters does not cut anything. Decoding token by token
    would break characters whose bytes are split over tokens.
    """
    kept = list(ids)
    while kept and kept[-1] in eos_ids:
        kept.pop()
    return str(tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def prefix_lengths(
    tokenizer: PreTrainedTokenizerBase, eos_ids: frozenset[int]
) -> Callable[[Sequence[int]], Callable[[int], int]]:
    """For the ids of a completion: how many characters of its text the first i tokens make.

    A character whose bytes are spread over tokens counts with the last of them. Until then the tokens decode to
    something else than the text (U+FFFD, with byte fallback once per byte of the whole run), so the length is that of
    the longest prefix that the text begins with; a character has at most MAX_BYTES bytes, hence as few prefixes to try.
    """

    def of_completion(ids: Sequence[int]) -> Callable[[int], int]:
        text = decode_completion(tokenizer, ids, eos_ids)

        def prefix_length(num_tokens: int) -> int:
            for count in range(num_tokens, max(num_tokens - MAX_BYTES, -1), -1):
                prefix = decode_completion(tokenizer, ids[:count], eos_ids)
                if text.startswith(prefix):
                    return len(prefix)
            return min(num_tokens, len(text))  # inside a long run of bytes that are no text: any place is as good

        return prefix_length

    return of_completion
