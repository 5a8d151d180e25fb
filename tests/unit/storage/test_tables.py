"""Tables: what goes in comes out, and broken bytes never count."""

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import lock, schemas, tables
from storage.errors import CorruptArtifact, LostLock, ProvenanceMismatch, UnknownFormat
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
    assert tables.repaired_rows(ref) == (0, 1, 7)


def test_a_row_with_two_repaired_texts_counts_twice_and_is_marked_once(place):
    rows = [completion("fine"), completion("\ud800", finish_reason="\udc00")]
    ref = publish(place, rows)
    assert tables.metrics_of(ref)[tables.REPAIRED_METRIC] == 2
    assert tables.repaired_rows(ref) == (1,)
    assert tables.read(ref)[1]["finish_reason"] == "\ufffd"


def test_rows_are_not_changed_by_being_stored(place):
    row = completion("\ud800")
    publish(place, [row])
    assert row["text"] == "\ud800"


ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]))


@given(ANY_TEXT)
def test_a_repair_keeps_every_character_that_utf8_can_hold(text):
    repaired, changed = repair(text)
    assert changed is (repaired != text)
    assert repaired.encode("utf-8").decode("utf-8") == repaired
    if not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert repaired == text
    assert repair(repaired) == (repaired, False)


@given(ANY_TEXT)
def test_a_repair_is_what_utf16_makes_of_the_text(text):
    assert repair(text)[0] == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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


def test_lists_come_back_as_lists_and_an_empty_one_is_not_none(place):
    rows = [completion(sampler_logprobs=value) for value in ([], None, [-0.5, -1.0])]
    found = [row["sampler_logprobs"] for row in tables.read(publish(place, rows))]
    assert found == [[], None, [-0.5, -1.0]]
    assert [type(value) for value in found] == [list, type(None), list]
    assert json.dumps(found) == "[[], null, [-0.5, -1.0]]"


@pytest.mark.parametrize(
    ("column", "value", "held"),
    [
        ("sample_index", 1.5, "int32 and never null"),
        ("sample_index", 1.0, "int32"),
        ("sample_index", True, "int32"),
        ("sample_index", 2**31, "int32"),
        ("sample_index", None, "int32 and never null"),
        ("group_id", None, "string and never null"),
        ("group_id", 7, "string"),
        ("text", b"bytes", "large_string"),
        ("temperature", True, "double"),
        ("temperature", "0.5", "double"),
        ("is_truncated", 1, "bool"),
        ("is_truncated", "no", "bool"),
        ("completion_token_ids", [1, 2.5], "list"),
        ("completion_token_ids", None, "never null"),
        ("completion_token_ids", 5, "list"),
        ("completion_token_ids", "12", "list"),
        ("seed", 2**63, "int64"),
    ],
)
def test_a_value_that_would_be_changed_or_lost_is_refused_with_its_row(place, monkeypatch, column, value, held):
    monkeypatch.setattr(tables, "ROWS_PER_PART", 2)
    rows = [completion() for _ in range(3)] + [completion(**{column: value}), completion()]
    with pytest.raises(ValueError, match=rf"column {column} of completions holds .*{held}.*, row 3 has ") as error:
        publish(place, rows)
    assert repr(value) in str(error.value)
    assert not any(place.lineage_folder.rglob("*.parquet"))


def test_a_long_value_is_not_printed_whole(place):
    with pytest.raises(ValueError, match="row 0 has ") as error:
        publish(place, [completion(seed="x" * 10_000)])
    assert len(str(error.value)) < 300


def test_two_sources_of_one_name_are_refused(place):
    with pytest.raises(ValueError, match="not distinct"):
        tables.publish(place, "rewards", [], provenance("rewards"), sources=("exact", "exact"))


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
    assert len(list(place.folder("completions").parent.glob(".corrupt-completions-*"))) == 1
    assert not place.folder("completions").exists()
    rebuilt = publish(place, rows)
    assert tables.find(place, "completions", provenance("completions")) == rebuilt
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


def test_columns_of_a_later_version_are_named_and_not_read(place, monkeypatch):
    monkeypatch.setattr(tables, "SCHEMA_VERSION", 9)
    ref = publish(place, rows_of("completions"))
    monkeypatch.undo()
    with pytest.raises(UnknownFormat, match="columns of schema 9, this code reads 1 to 3; use the version"):
        tables.read(ref)


def test_files_beside_the_parts_are_not_read(place):
    rows = rows_of("completions")
    ref = publish(place, rows)
    part = part_of(place)
    pq.write_table(pq.read_table(part), part.with_name("a-part.parquet"))
    assert tables.read(ref) == rows
    assert tables.find(place, "completions", provenance("completions")) == ref


def test_the_path_of_a_store_adds_no_column(tmp_path):
    with lock.hold(tmp_path / "year=2026", "lineage") as place:
        assert tables.read(publish(place, rows_of("completions"))) == rows_of("completions")


def test_a_ref_of_other_rows_is_refused(place):
    ref = publish(place, rows_of("completions"))
    with pytest.raises(CorruptArtifact, match="the reference names 00"):
        tables.read(ref.model_copy(update={"digest": "00"}))


def test_a_table_that_is_gone_is_named(place):
    ref = publish(place, rows_of("completions"))
    part_of(place).unlink()
    with pytest.raises(CorruptArtifact, match=r"part-00000.parquet is missing; restore .* or delete"):
        tables.read(ref)


def test_a_table_has_a_ref_by_its_folder_and_a_checkpoint_has_none(place):
    ref = publish(place, rows_of("completions"))
    assert tables.ref_at(place.folder("completions")) == ref
    with pytest.raises(CorruptArtifact, match="no committed table"):
        tables.ref_at(place.folder("rewards"))
    lone = place.at(iteration=1)
    write = lambda folder: (folder / "model.safetensors").write_bytes(b"w")  # noqa: E731
    tables.commits.publish(lone, lone.folder("policy"), write, Provenance(stage="policy", inputs={}))
    with pytest.raises(CorruptArtifact, match="holds a policy, not a table"):
        tables.ref_at(lone.folder("policy"))


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
