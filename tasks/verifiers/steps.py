"""The steps of a completion: cut from its text, placed on its tokens, rewarded one by one."""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.verifiers.text_kinds import NewlineSplit, SeparatorSplit, StepSplit, TagSplit

PrefixLength = Callable[[int], int]
"""Characters of the text that the first i tokens of a completion make."""

_LINE = re.compile(r"[^\r\n]*[\r\n]")
_NOTHING_SAID = re.compile(r"(?:\s|</[^<>\s]+>)*")


@dataclass(frozen=True)
class StepRewards:
    """The rewards of one completion's steps, whoever gives them: a step verifier or a process reward model.

    ``ends``: position of each step's last token within the completion, from 0, inclusive; the last step ends at the last
    token, end-of-sequence included. ``rewards``: one per end.
    Source: index(j) and r^index(j) of DeepSeekMath, arXiv:2402.03300, section 4.1.3.
    """

    ends: tuple[int, ...]
    rewards: tuple[float, ...]

    def check(self, num_tokens: int) -> None:
        """ValueError naming the value, unless the steps partition a completion of ``num_tokens`` tokens."""
        if len(self.ends) != len(self.rewards):
            raise ValueError(f"{len(self.ends)} step ends and {len(self.rewards)} step rewards do not match")
        for before, end in zip((-1, *self.ends), self.ends, strict=False):
            if end <= before:
                raise ValueError(f"step end {end} does not come after {before}; the ends {self.ends} must increase")
        if self.ends and self.ends[-1] != num_tokens - 1:
            raise ValueError(f"the last step ends at token {self.ends[-1]}, the completion at token {num_tokens - 1}")
        for reward in self.rewards:
            if not math.isfinite(reward):
                raise ValueError(f"step reward {reward} is not finite")


def cut(text: str, split: StepSplit) -> list[int]:
    """Where the steps of a text end: characters, exclusive, increasing, the last one len(text).

    What is left behind the last end is a step too (the token limit may have cut it). A last piece that says nothing (only
    white space and closing tags) joins the step before it. An empty text has no steps.
    """
    ends = [end for end in SPLITS[type(split)](split, text) if end < len(text)]
    while ends and _NOTHING_SAID.fullmatch(text, ends[-1]):
        ends.pop()
    return [*ends, len(text)] if text else []


def token_ends(num_tokens: int, char_ends: Sequence[int], prefix_length: PrefixLength) -> list[int]:
    """The last token of each step, from 0, strictly increasing; the last one is the completion's last token.

    A step ends with the token that writes its last character, found by bisection: log2(num_tokens) prefixes per step.
    Steps that end in one token are one step.

    Args:
        num_tokens: tokens of the completion, end-of-sequence included.
        char_ends: as ``cut`` gives them.
        prefix_length: need not be monotone everywhere: bytes of one character that are spread over tokens may decode to
            more characters than they make at last. The ends are clamped to increase.

    Raises:
        ValueError: the character ends do not increase.
    """
    return sorted(set(_positions(num_tokens, char_ends, prefix_length)))


def on_tokens(
    steps: Sequence[tuple[int, float]], num_tokens: int, prefix_length: PrefixLength
) -> tuple[StepRewards, int]:
    """Step rewards by character put on tokens, and how many steps vanished because they shared their last token.

    Of steps that end in one token the smallest reward counts: one wrong step makes their union wrong.

    Args:
        steps: (character end, reward), as a verdict holds them.
        num_tokens, prefix_length: as in ``token_ends``.
    """
    worst: dict[int, float] = {}
    positions = _positions(num_tokens, [end for end, _ in steps], prefix_length)
    for position, (_, reward) in zip(positions, steps, strict=False):  # no tokens: no positions
        worst[position] = min(reward, worst.get(position, math.inf))
    placed = StepRewards(tuple(worst), tuple(worst.values()))
    placed.check(num_tokens)
    return placed, len(positions) - len(worst)


def at_positions(ends: Sequence[int], rewards: Sequence[float], num_tokens: int) -> StepRewards:
    """Steps that end at the token positions that a process reward model marked.

    What follows the last mark (the end-of-sequence token, as a rule) belongs to the last step.

    Args:
        ends: position of each step's last token within the completion, from 0, increasing.
        rewards: one per end.

    Raises:
        ValueError: ends out of order or behind the completion, not one reward per end, or one that is not finite.
    Source: index(j) of DeepSeekMath, arXiv:2402.03300, section 4.1.3.
    """
    if ends and ends[-1] >= num_tokens:
        raise ValueError(f"step end {ends[-1]} is behind a completion of {num_tokens} tokens")
    marked = StepRewards(tuple(ends), tuple(rewards))
    if ends:
        marked.check(ends[-1] + 1)
    placed = StepRewards((*ends[:-1], num_tokens - 1) if ends else (), tuple(rewards))
    placed.check(num_tokens)
    return placed


def _positions(num_tokens: int, char_ends: Sequence[int], prefix_length: PrefixLength) -> list[int]:
    """The last token of each step, not decreasing; one per step, none without tokens."""
    if list(char_ends) != sorted(set(char_ends)):
        raise ValueError(f"the character ends {list(char_ends)} must increase")
    if not num_tokens or not char_ends:
        return []
    prefixes = range(1, num_tokens)  # all tokens are never decoded: what no shorter prefix holds, the last token ends
    found = [0]
    for end in char_ends[:-1]:
        found.append(bisect_left(prefixes, end, lo=found[-1], key=prefix_length))
    return [*found[1:], num_tokens - 1]


def at_newlines(_: NewlineSplit, text: str) -> list[int]:
    """Ends after every line (LF, CR or CRLF, a line and a blank one); a blank line joins the one before, or the first one.

    Source: the newline-delimited steps of Let's Verify Step by Step, arXiv:2305.20050, section 2.2.
    """
    ends: list[int] = []
    for line in _LINE.finditer(text):
        if ends and not line.group().strip():
            ends[-1] = line.end()
        elif text[: line.end()].strip():
            ends.append(line.end())
    return ends


def at_separators(split: SeparatorSplit, text: str) -> list[int]:
    """Ends after every separator; where several match, the longest.

    Source: the step tag of Math-Shepherd, arXiv:2312.08935, for which any text may stand.
    """
    longest_first = sorted(split.separators, key=len, reverse=True)
    return [match.end() for match in re.finditer("|".join(map(re.escape, longest_first)), text)]


def at_tags(split: TagSplit, text: str) -> list[int]:
    """Ends after every closed <tag>...</tag>; what stands between two blocks belongs to the second.

    Source: the tagged completions of DeepSeek-R1, arXiv:2501.12948, section 2.2.3, with a tag per step.
    """
    opening, closing = f"<{split.tag}>", f"</{split.tag}>"
    ends: list[int] = []
    position = 0
    while (begin := text.find(opening, position)) >= 0 and (end := text.find(closing, begin)) >= 0:
        position = end + len(closing)
        ends.append(position)
    return ends


SPLITS: dict[type, Callable[[Any, str], list[int]]] = {
    NewlineSplit: at_newlines,
    SeparatorSplit: at_separators,
    TagSplit: at_tags,
}
