"""Plain values as JSON, with their exact types: what crosses between a program and its tests.

Only values of these very types are encoded, never of a class derived from one, for such a value decides itself what it
equals. The decoder makes nothing but them and handles, whatever the other side wrote. Runs inside the sandboxes.
"""

import sys
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_DEPTH = 200
MAX_ITEMS = 1_000_000


class NotPlain(Exception):
    """A value that can not cross."""


class TooLarge(NotPlain):
    """A value that is too deep or too large to cross."""


class Codec:
    """Encodes and decodes; the two functions treat what is not plain: they give a number for it, or it for a number."""

    def __init__(self, to_handle: "Callable[[Any], int]", from_handle: "Callable[[int], Any]") -> None:
        self._to_handle = to_handle
        self._from_handle = from_handle
        self._num_items = 0

    def encode(self, value: "Any") -> "Any":
        """The value as JSON would hold it.

        Raises:
            NotPlain: too deep, too large, or refused by ``to_handle``.
        """
        self._num_items = 0
        return self._encode(value, 0)

    def decode(self, value: "Any") -> "Any":
        """The value that ``encode`` gave; the types are this process's own.

        Raises:
            NotPlain: it is no encoded value.
        """
        self._num_items = 0
        try:
            return self._decode(value, 0)
        except NotPlain:
            raise
        except Exception as error:  # the other side may have written anything
            raise NotPlain(f"not an encoded value: {type(error).__name__}") from error

    def _count(self, depth: int) -> None:
        self._num_items += 1
        if depth > MAX_DEPTH:
            raise TooLarge(f"a value nested deeper than {MAX_DEPTH}")
        if self._num_items > MAX_ITEMS:
            raise TooLarge(f"a value of more than {MAX_ITEMS} items")

    def _encode(self, value: "Any", depth: int) -> "Any":
        self._count(depth)
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return value if -(2**62) < value < 2**62 else ["int", hex(value)]
        if kind is bytes or kind is bytearray:
            return [kind.__name__, value.decode("latin-1")]
        if kind in SEQUENCES:
            return [SEQUENCES[kind], *[self._encode(item, depth + 1) for item in value]]
        if _is(kind, LATER_SEQUENCES):
            return [kind.__name__, *[self._encode(item, depth + 1) for item in value]]
        if kind is dict or _is(kind, LATER_MAPPINGS):
            pairs = [[self._encode(key, depth + 1), self._encode(item, depth + 1)] for key, item in value.items()]
            return [kind.__name__, *pairs]
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is range:
            return ["range", *[self._encode(part, depth + 1) for part in (value.start, value.stop, value.step)]]
        if _is(kind, LATER_NUMBERS):
            return [kind.__name__, str(value)]
        return ["handle", self._to_handle(value)]

    def _decode(self, value: "Any", depth: int) -> "Any":
        self._count(depth)
        if not isinstance(value, list):
            if isinstance(value, dict):
                raise NotPlain("not an encoded value: a dict")
            return value
        name, *rest = value
        if name in MAKE_SEQUENCE or name in LATER_SEQUENCES:
            make = MAKE_SEQUENCE[name] if name in MAKE_SEQUENCE else _named(name, LATER_SEQUENCES)
            return make([self._decode(item, depth + 1) for item in rest])
        if name == "dict" or name in LATER_MAPPINGS:
            pairs = {self._decode(key, depth + 1): self._decode(item, depth + 1) for key, item in rest}
            if name == "dict":
                return pairs
            made = _named(name, LATER_MAPPINGS)()
            for key, item in pairs.items():
                made[key] = item
            return made
        if name == "int":
            return int(rest[0], 16)
        if name in ("bytes", "bytearray"):
            return (bytes if name == "bytes" else bytearray)(rest[0].encode("latin-1"))
        if name == "complex":
            return complex(float(rest[0]), float(rest[1]))
        if name == "range":
            return range(*[self._decode(part, depth + 1) for part in rest])
        if name in LATER_NUMBERS:
            return _named(name, LATER_NUMBERS)(str(rest[0]))
        if name == "handle" and type(rest[0]) is int:
            return self._from_handle(rest[0])
        raise NotPlain("not an encoded value: an unknown type")


SEQUENCES: "dict[type[Any], str]" = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
LATER_SEQUENCES = {"deque": "collections"}
LATER_MAPPINGS = {"Counter": "collections", "OrderedDict": "collections", "defaultdict": "collections"}
LATER_NUMBERS = {"Fraction": "fractions", "Decimal": "decimal"}
"""Types and their modules, which are not imported unless they are used."""

MAKE_SEQUENCE: "dict[str, Callable[[list[Any]], Any]]" = {name: kind for kind, name in SEQUENCES.items()}


def _is(kind: "type[Any]", names: "dict[str, str]") -> bool:
    """Whether it is one of these very types."""
    module = sys.modules.get(names.get(kind.__name__, ""))
    return module is not None and getattr(module, kind.__name__, None) is kind


def _named(name: str, names: "dict[str, str]") -> "Any":
    return getattr(__import__(names[name]), name)


def text_of(value: "Any") -> str:
    """JSON of what ``encode`` gave; the json module would be slower to import than a program is to run."""
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is list:
        return f"[{','.join(map(text_of, value))}]"
    if kind is dict:
        return f"{{{','.join(f'{encode_basestring_ascii(key)}:{text_of(item)}' for key, item in value.items())}}}"
    if kind is float:
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    return {None: "null", True: "true", False: "false"}[value] if kind is not int else repr(value)
