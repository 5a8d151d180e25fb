"""Tables of an older schema, brought to today's columns as they are read; the files stay as they were committed."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from storage.errors import CorruptArtifact
from storage.schemas import SCHEMA_VERSION, schema_of

STATUS = "_status"  # rewards have a column of this name for each source


def forward(table: pa.Table, name: str, version: int, folder: Path) -> pa.Table:
    """The table under today's schema: a column that it did not have yet is null, "not known".

    Args:
        version: the schema that it was written with, 1 or later; a table of today's is given back as it is.

    Raises:
        CorruptArtifact: a column that must be there is not.
    """
    if version == SCHEMA_VERSION:
        return table
    for step in range(version, SCHEMA_VERSION):
        table = STEPS[step](table, name)
    sources = tuple(each.removesuffix(STATUS) for each in table.column_names if each.endswith(STATUS))
    schema = schema_of(name, sources if name == "rewards" else ())
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table.column(field.name).cast(field.type))
        elif field.nullable:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            raise CorruptArtifact(f"{folder} is a {name} table of schema {version} without the column {field.name}")
    return pa.Table.from_arrays(columns, schema=schema)


def from_1(table: pa.Table, name: str) -> pa.Table:
    """Samples had no penalty, reference, values and returns: they come in as null."""
    return table


def from_2(table: pa.Table, name: str) -> pa.Table:
    """A label was called a pair."""
    if "pair_id" not in table.column_names:
        return table
    return table.rename_columns(["label_id" if each == "pair_id" else each for each in table.column_names])


STEPS: Mapping[int, Callable[[pa.Table, str], pa.Table]] = {1: from_1, 2: from_2}
"""Schema version -> what brings a table of it to the next one."""
