"""Rows to Arrow columns, strictly: what a column can not hold as it is, is refused with its row."""

from collections.abc import Callable, Iterable
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa


def to_arrow(rows: list[dict[str, Any]], schema: pa.Schema, table: str, first: int) -> pa.Table:
    """Rows under a schema.

    Args:
        first: the number of the first row within its table, for messages.

    Raises:
        ValueError: a value is not of its column's type, or is missing where there must be one; names column and row.
    """
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if (column := _column(values, field)) is None:
            bad = next(index for index, value in enumerate(values) if _column([value], field) is None)
            raise ValueError(
                f"column {field.name} of {table} holds {field.type}{'' if field.nullable else ' and never null'}, "
                f"row {first + bad} has {_short(values[bad])}"
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array | None:
    """The values as Arrow holds them, None when it would change one: left alone it stores 1.5 as the integer 1."""
    try:
        if not _is_of_its_type(values, field.type):
            return None
        column = pa.array(values, type=field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return None if column.null_count and not field.nullable else column


def _is_of_its_type(values: Iterable[Any], type_: pa.DataType) -> bool:
    if pa.types.is_list(type_):
        return _is_of_its_type(chain.from_iterable(value for value in values if value is not None), type_.value_type)
    taken = next(classes for is_kind, classes in KINDS if is_kind(type_))
    given = set(map(type, values)) - {NoneType}
    return all(issubclass(each, taken) and (each is not bool or bool in taken) for each in given)  # a bool is an int


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


KINDS: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_)),
    (pa.types.is_integer, (int, np.integer)),
    (pa.types.is_floating, (int, float, np.integer, np.floating)),
    (_is_text, (str,)),
)
"""Kind of a column, classes of the values that it takes."""
