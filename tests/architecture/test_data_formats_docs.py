"""docs/data-formats.md says of every table what storage/schemas.py says, and knows every step of a migration."""

import re
from pathlib import Path

import pytest

from storage import migrations, table_migrations
from storage.manifest import Manifest
from storage.schemas import SCHEMA_VERSION, TABLES, rewards_schema

TEXT = (Path(__file__).parents[2] / "docs" / "data-formats.md").read_text(encoding="utf-8")
SCHEMAS = {**TABLES, "rewards": rewards_schema(("SOURCE",))}


def documented(name):
    """(column, type, whether it may be null) of each row below a table's heading."""
    (section,) = re.findall(rf"^### `{name}`\n(.*?)(?=^### |\Z)", TEXT, flags=re.M | re.S)
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (yes|never) \| (.+) \|$", section, flags=re.M)
    assert all(len(what) > 3 for *_, what in rows)
    return [(column, type_, null == "yes") for column, type_, null, _ in rows]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_column_is_described_with_its_type_and_whether_it_may_be_null(name):
    assert documented(name) == [(field.name, str(field.type), field.nullable) for field in SCHEMAS[name]]


def test_no_other_table_is_described_and_the_version_is_todays():
    assert set(re.findall(r"^### `(\w+)`$", TEXT, flags=re.M)) == set(SCHEMAS)
    assert f"\nSchema version {SCHEMA_VERSION}. " in TEXT


@pytest.mark.parametrize(
    ("what", "steps"),
    [
        ("`lineage.json`", migrations.LINEAGE_STEPS),
        ("`record.json`", migrations.RECORD_STEPS),
        ("`decisions/NNNN.json`", migrations.DECISION_STEPS),
        ("tables", table_migrations.STEPS),
    ],
)
def test_every_step_of_a_migration_has_a_row(what, steps):
    rows = re.findall(rf"^\| {re.escape(what)} \| (\d+) \| (\d+) \| .+ \|$", TEXT, flags=re.M)
    assert rows == [(str(number), str(number + 1)) for number in steps]


def test_every_key_of_a_manifest_has_a_row():
    section = TEXT.partition("## Manifests")[2].partition("## References")[0]
    keys = {key for row in re.findall(r"^\| (`.+?`) \|", section, flags=re.M) for key in re.findall(r"`(\w+)`", row)}
    assert keys == set(Manifest.model_fields)
