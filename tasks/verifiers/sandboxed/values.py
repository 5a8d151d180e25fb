"""Plain values as JSON, with their exact types: what crosses between a program and its tests.

Only values of these very types are encoded, never of a class derived from one, for such a value decides itself what it
equals. The decoder makes nothing but them and handles, whatever the other side wrote. Runs inside the sandboxes.
"""

import collections
import sys
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

    def __init__(self, to_handle: Callable[[Any], int], from_handle: Callable[[int], Any]) -> None:
        self._to_handle = to_handle
        self._from_handle = from_handle
        self._num_items = 0

    def encode(self, value: Any) -> Any:
        """The value as JSON would hold it.

        Raises:
            NotPlain: too deep, too large, or refused by ``to_handle``.
        """
        self._num_items = 0
        return self._encode(value, 0)

    def decode(self, value: Any) -> Any:
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

    def _encode(self, value: Any, depth: int) -> Any:
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
        if kind in MAPPINGS:
            pairs = [[self._encode(key, depth + 1), self._encode(item, depth + 1)] for key, item in value.items()]
            return [MAPPINGS[kind], *pairs]
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is range:
            return ["range", *[self._encode(part, depth + 1) for part in (value.start, value.stop, value.step)]]
        for name, module in EXACT_NUMBERS.items():
            if module in sys.modules and kind is getattr(sys.modules[module], name, None):
                return [name, str(value)]
        return ["handle", self._to_handle(value)]

    def _decode(self, value: Any, depth: int) -> Any:
        self._count(depth)
        if not isinstance(value, list):
            if isinstance(value, dict):
                raise NotPlain("not an encoded value: a dict")
            return value
        name, *rest = value
        if name in MAKE_SEQUENCE:
            return MAKE_SEQUENCE[name]([self._decode(item, depth + 1) for item in rest])
        if name in MAKE_MAPPING:
            pairs = [(self._decode(key, depth + 1), self._decode(item, depth + 1)) for key, item in rest]
            return MAKE_MAPPING[name](pairs)
        if name == "int":
            return int(rest[0], 16)
        if name in ("bytes", "bytearray"):
            return (bytes if name == "bytes" else bytearray)(rest[0].encode("latin-1"))
        if name == "complex":
            return complex(float(rest[0]), float(rest[1]))
        if name == "range":
            return range(*[self._decode(part, depth + 1) for part in rest])
        if name in EXACT_NUMBERS:
            return getattr(__import__(EXACT_NUMBERS[name]), name)(str(rest[0]))
        if name == "handle" and type(rest[0]) is int:
            return self._from_handle(rest[0])
        raise NotPlain("not an encoded value: an unknown type")


SEQUENCES: dict[type[Any], str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    collections.deque: "deque",
}
MAPPINGS: dict[type[Any], str] = {
    dict: "dict",
    collections.Counter: "Counter",
    collections.OrderedDict: "OrderedDict",
    collections.defaultdict: "defaultdict",
}
EXACT_NUMBERS = {"Fraction": "fractions", "Decimal": "decimal"}
MAKE_SEQUENCE: dict[str, Callable[[list[Any]], Any]] = {name: kind for kind, name in SEQUENCES.items()}
MAKE_MAPPING: dict[str, Callable[[list[tuple[Any, Any]]], Any]] = {
    "dict": dict,
    "Counter": lambda pairs: collections.Counter(dict(pairs)),
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda pairs: collections.defaultdict(None, pairs),
}
