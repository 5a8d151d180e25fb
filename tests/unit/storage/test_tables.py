"""Tables: what goes in comes out, and broken bytes never count."""

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import schemas, tables
from storage.errors import CorruptArtifact, LostLock, ProvenanceMismatch
from storage.manifest import Provenance
from storage.text import repair

SOURCES = ("exact", "reward_model")


def example(field_type, index):
    if pa.types.is_list(field_type):
        return [] if index == 0 else [example(field_type.value_type, 1)] * 3
    if pa.types.is_boolean(field_type):
        return index % 2 == 0
    if pa.types.is_integer(field_type):
        return index + 7
    if pa.types.is_floating(field_type):
        return 0.5 * index
    return f"text {index} 정답"


def rows_of(table, count=3):
    schema = schemas.schema_of(table, SOURCES)
    return [{field.name: example(field.type, index) for field in schema} for index in range(count)]


def provenance(table, **inputs):
    return Provenance(stage=table, inputs=inputs, config={"a": 1}, seed=3)


def completion(text="x", **changes):
    return {**rows_of("completions", 1)[0], "text": text, **changes}


def publish(place, rows, table="completions"):
    return tables.publish(place, table, rows, provenance(table), sources=SOURCES if table == "rewards" else ())


@pytest.mark.parametrize("table", [*schemas.TABLES, "rewards"])
def test_every_table_comes_back_as_it_went_in(place, table):
    rows = rows_of(table)
    ref = publish(place, rows, table)
    assert tables.read(ref) == rows
    assert tables.find(place, table, provenance(table)) == ref
    assert ref.num_rows == 3


def test_an_empty_table_is_a_table(place):
    ref = publish(place, [])
    assert tables.read(ref) == []
    assert tables.find(place, "completions", provenance("completions")) == ref


STRINGS = [
    ("ok\ud800bad", "ok\ufffdbad"),
    ("\ud83d\ude00", "\U0001f600"),
    ("a\x00b", "a\x00b"),
    ("", ""),
    ("정답", "정답"),
    ("\n\n\n", "\n\n\n"),
    ("x" * 5_000_000, "x" * 5_000_000),
    ("\ude00\ud83d", "\ufffd\ufffd"),
]


def test_any_string_a_model_can_emit_is_stored_in_order(place):
    ref = publish(place, [completion(text) for text, _ in STRINGS])
    assert [row["text"] for row in tables.read(ref)] == [right for _, right in STRINGS]
    assert tables.metrics_of(ref)[tables.REPAIRED_METRIC] == 3


@pytest.mark.parametrize(("text", "right"), STRINGS)
def test_a_repair_is_said_exactly_when_the_text_changed(text, right):
    assert repair(text) == (right, text != right)


def reward(value, model=None):
    row = dict.fromkeys(schemas.schema_of("rewards", SOURCES).names)
    return {**row, "group_id": "g", "prompt_id": "p", "sample_index": 0, "reward": value, "reward_model_reward": model}


def test_none_nan_integers_and_floats_stay_what_they_are(place):
    ref = publish(place, [reward(value) for value in (0.1, None, math.nan, 1)], "rewards")
    found = [row["reward"] for row in tables.read(ref)]
    assert found[:2] == [0.1, None]
    assert math.isnan(found[2])
    assert found[3] == 1.0
    assert isinstance(found[3], float)


def test_a_shard_of_nones_and_a_shard_of_floats_have_one_type(place):
    nothing = publish(place.at(iteration=1), [reward(0.5, None)], "rewards")
    something = publish(place.at(iteration=2), [reward(1, 0.5)], "rewards")
    joined = pa.concat_tables([tables.read_arrow(nothing), tables.read_arrow(something)])
    assert joined["reward_model_reward"].to_pylist() == [None, 0.5]


def test_a_column_too_few_or_too_many_is_named_and_nothing_is_committed(place):
    row = completion()
    del row["seed"]
    with pytest.raises(ValueError, match=r"missing columns \['seed'\], surplus columns \['extra'\]"):
        publish(place, [{**row, "extra": 1}])
    with pytest.raises(ValueError, match="column seed"):
        publish(place, [completion(seed="not a number")])
    assert tables.find(place, "completions", provenance("completions")) is None
    assert not any(place.lineage_folder.rglob("*.parquet"))


def test_many_rows_are_cut_into_parts_and_come_back_in_order(place, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_PER_PART", 4)
    rows = [completion(str(index)) for index in range(10)]
    ref = publish(place, rows)
    assert len(list(place.folder("completions").glob("*.parquet"))) == 3
    assert [row["text"] for row in tables.read(ref)] == [str(index) for index in range(10)]


def test_the_digest_depends_on_the_rows_alone(place):
    first = publish(place.at(iteration=1), rows_of("completions"))
    second = publish(place.at(iteration=2), rows_of("completions"))
    other = publish(place.at(iteration=3), rows_of("completions", 2))
    assert first.digest == second.digest != other.digest


def part_of(place):
    return next(place.folder("completions").glob("*.parquet"))


@pytest.mark.parametrize("keep", ["nothing", "four bytes", "half", "all but one byte", "no file"])
def test_a_part_that_was_cut_does_not_count_and_is_rebuilt_once(place, keep, caplog):
    rows = rows_of("completions")
    ref = publish(place, rows)
    part = part_of(place)
    data = part.read_bytes()
    length = {"nothing": 0, "four bytes": 4, "half": len(data) // 2, "all but one byte": len(data) - 1, "no file": 0}[
        keep
    ]
    part.write_bytes(data[:length])
    if keep == "no file":
        part.unlink()
    assert tables.find(place, "completions", provenance("completions")) is None
    assert part.name in caplog.text
    rebuilt = publish(place, rows)
    assert rebuilt.digest == ref.digest
    assert tables.read(rebuilt) == rows


def test_a_changed_byte_is_refused_by_digest_and_names_the_file(place):
    ref = publish(place, rows_of("completions"))
    part = part_of(place)
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(bytes(data))
    with pytest.raises(CorruptArtifact, match=r"part-00000.parquet has sha256"):
        tables.read(ref)


def test_a_valid_parquet_file_of_other_rows_is_refused(place):
    ref = publish(place, rows_of("completions"))
    pq.write_table(pq.read_table(part_of(place)).slice(0, 1), part_of(place))
    with pytest.raises(CorruptArtifact):
        tables.read(ref)


def test_a_folder_without_a_manifest_never_happened(place):
    publish(place, rows_of("completions"))
    (place.folder("completions") / "manifest.json").unlink()
    assert tables.find(place, "completions", provenance("completions")) is None
    publish(place, rows_of("completions"))


def test_a_torn_manifest_never_happened(place):
    publish(place, rows_of("completions"))
    (place.folder("completions") / "manifest.json").write_text('{"format": 1, "prov')
    assert tables.find(place, "completions", provenance("completions")) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"inputs": {"policy": "other"}}, "inputs.policy: recorded nothing, asked 'other'"),
        ({"config": {"a": 2}}, "config.a: recorded 1, asked 2"),
        ({"config": {}}, "config.a: recorded 1, asked nothing"),
        ({"seed": 4}, "seed: recorded 3, asked 4"),
    ],
)
def test_a_stage_made_from_something_else_is_neither_reused_nor_recomputed(place, changes, named):
    ref = publish(place, rows_of("completions"))
    asked = provenance("completions").model_copy(update=changes)
    with pytest.raises(ProvenanceMismatch) as error:
        tables.find(place, "completions", asked)
    assert named in str(error.value)
    assert tables.read(ref) == rows_of("completions")


def test_publishing_twice_is_an_error(place):
    publish(place, rows_of("completions"))
    with pytest.raises(FileExistsError):
        publish(place, rows_of("completions"))


def test_a_run_that_lost_its_lineage_commits_nothing(place):
    holder = place.lineage_folder / "holder.json"
    holder.write_text(json.dumps({"token": place.token + 1}))
    with pytest.raises(LostLock, match=f"token {place.token + 1}, this one has {place.token}"):
        publish(place, rows_of("completions"))
    assert not place.folder("completions").exists()
    assert not any(place.lineage_folder.rglob(".tmp-*"))
