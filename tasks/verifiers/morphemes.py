"""Korean text taken apart by Kiwi; runs in the verifier processes only. Needs the extra ``korean``."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

CURE = (
    "kiwipiepy is missing; install it with pip install -e '.[korean]', or leave speech_level and spacing out of checks"
)


class Morpheme(NamedTuple):
    form: str
    """Dictionary form; a final consonant that stands alone is a conjoining jamo (U+11B8 in -ㅂ니다)."""
    tag: str
    """Of the Sejong tag set: EF a sentence ending, JX a particle, S* signs, ..."""


class Sentence(NamedTuple):
    text: str
    morphemes: tuple[Morpheme, ...]


@cache
def load() -> Any:
    """The analyser, one thread. Takes about 3 s and 0.5 GB once per process.

    Raises:
        ImportError: the extra is not installed.
    """
    from kiwipiepy import Kiwi  # imported here, in the child: an optional extra

    kiwi = Kiwi(num_workers=1)
    kiwi.space("이것은 책이다.")  # the model itself is read at the first use
    return kiwi


def sentences_of(text: str) -> Iterator[Sentence]:
    """The sentences in order. A line break ends one: headings and list items have no full stop.

    Source: kiwipiepy 0.24, ``Kiwi.split_into_sents``.
    """
    for line in text.splitlines():
        if line.strip():
            for found in load().split_into_sents(line, return_tokens=True, return_sub_sents=False):
                yield Sentence(found.text, tuple(Morpheme(token.form, str(token.tag)) for token in found.tokens))


def respaced(line: str) -> str:
    """One line with the spaces that Kiwi would write, decided without looking at the given ones between Hangul.

    Source: kiwipiepy 0.24, ``Kiwi.space(reset_whitespace=True)``.
    """
    return str(load().space(line, reset_whitespace=True))
