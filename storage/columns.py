"""Rows to Arrow columns, strictly: what a column can not hold as it is, is refused with its row."""

from collections.abc import Callable
from typing import Any

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
        column = pa.array(values, type=field.type)
        given, held = _innermost(pa.infer_type(values)), _innermost(field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    if column.null_count and not field.nullable:
        return None
    fits = pa.types.is_null(given) or any(is_kind(held) and takes(given) for is_kind, takes in KINDS)
    return column if fits else None


def _innermost(type_: pa.DataType) -> pa.DataType:
    while pa.types.is_list(type_):
        type_ = type_.value_type
    return type_


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_floating(type_) or pa.types.is_integer(type_))


KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (pa.types.is_boolean, pa.types.is_boolean),
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_floating, _is_number),
    (_is_text, _is_text),
)
"""Kind of a column, kind of the values that it takes."""
