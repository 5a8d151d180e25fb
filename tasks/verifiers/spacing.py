"""Spaces between Korean words (띄어쓰기), compared with those that an analyser would write."""

import itertools
import re
from collections.abc import Callable
from typing import NamedTuple

SYLLABLE = re.compile("[가-힣]")


class Spaces(NamedTuple):
    """Places between two Hangul letters of one line."""

    num_wrong: int
    """A space that the corrected line does not have, or the other way round."""
    num_spaces: int
    """Places that have a space in either line."""

    @property
    def error_share(self) -> float:
        """num_wrong / (num_spaces + 1), in [0, 1): the one keeps a single doubtful space from deciding over a short text."""
        return self.num_wrong / (self.num_spaces + 1)


def compare_spaces(text: str, respaced: Callable[[str], str]) -> Spaces:
    """The given spaces against ``respaced`` (one line in, the same letters with other spaces out), line by line.

    Places beside digits, signs and other scripts are left out: "10 달러" and "10달러" are both right.

    Source: ours; without the one, the error share is the Jaccard distance between the two sets of spaces.
    """
    num_wrong = num_spaces = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        given, corrected = _spaces(line), _spaces(respaced(line))
        num_wrong += len(given ^ corrected)
        num_spaces += len(given | corrected)
    return Spaces(num_wrong, num_spaces)


def _spaces(line: str) -> set[int]:
    """Where spaces stand between two Hangul syllables, by the number of syllables before them.

    Counted in syllables, because the analyser may write what is not Hangul in another way.
    """
    words = line.split()
    places: set[int] = set()
    position = 0
    for left, right in itertools.pairwise(words):
        position += len(SYLLABLE.findall(left))
        if SYLLABLE.match(left[-1]) and SYLLABLE.match(right):
            places.add(position)
    return places
