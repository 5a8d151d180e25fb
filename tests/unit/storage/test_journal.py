"""The journal: an entry is written once, keeps its place, and leaves only when it was taken."""

import json

import pytest

from storage import journal, lock
from storage.errors import CorruptArtifact, LostLock
from storage.iterations import IterationRecord
from storage.refs import ModelRef


@pytest.fixture
def lineage(tmp_path):
    with lock.hold(tmp_path, "loop") as place:
        yield place.at(iteration=3)


def kinds(place):
    return [each.entry.kind for each in journal.pending(place.lineage_folder.parent, "loop")]


def test_entries_come_back_in_the_order_in_which_they_were_appended(lineage):
    for number in range(12):
        journal.append(lineage, "tags", {"tags": {"n": str(number)}})
    found = journal.pending(lineage.lineage_folder.parent, "loop")
    assert [each.entry.content["tags"]["n"] for each in found] == [str(number) for number in range(12)]
    assert {each.entry.iteration for each in found} == {3}
    assert journal.num_pending(lineage.lineage_folder.parent, "loop") == 12


def test_a_repeated_stage_adds_nothing_and_another_content_or_iteration_does(lineage):
    first = journal.append(lineage, "finish", {"status": "FINISHED"})
    journal.append(lineage, "tags", {"tags": {}})
    assert journal.append(lineage, "finish", {"status": "FINISHED"}) == first
    assert kinds(lineage) == ["finish", "tags"]
    journal.append(lineage, "finish", {"status": "FAILED"})
    journal.append(lineage.at(iteration=4), "finish", {"status": "FINISHED"})
    assert kinds(lineage) == ["finish", "tags", "finish", "finish"]


def test_what_was_delivered_is_gone_and_a_new_entry_stands_behind_the_rest(lineage):
    first = journal.append(lineage, "run", {})
    journal.append(lineage, "tags", {})
    journal.delivered(first)
    journal.append(lineage, "finish", {})
    assert kinds(lineage) == ["tags", "finish"]


def test_what_can_never_be_delivered_is_kept_with_the_reason(lineage):
    path = journal.append(lineage, "version", {"x": 1})
    aside = journal.refuse(path, "no such folder")
    assert kinds(lineage) == []
    assert json.loads(aside.read_text())["content"] == {"x": 1}
    assert aside.with_suffix(".txt").read_text() == "no such folder\n"


@pytest.mark.parametrize(("data", "said"), [(b"{", "is not JSON"), (b'{"kind": "x"}', "is not a journal's entry")])
def test_a_damaged_entry_is_named_with_the_cure(lineage, data, said):
    path = journal.append(lineage, "run", {})
    path.write_bytes(data)
    with pytest.raises(CorruptArtifact, match=f"{path.name} {said}.*igrpo repair-lineage"):
        journal.pending(lineage.lineage_folder.parent, "loop")


def test_who_lost_the_lineage_writes_nothing(lineage):
    with pytest.raises(LostLock):
        journal.append(lineage.model_copy(update={"token": lineage.token - 1}), "run", {})
    assert kinds(lineage) == []


def test_the_mark_names_one_record(lineage):
    root = lineage.lineage_folder.parent
    ref = ModelRef(uri="/x", digest="a" * 64, role="policy", version="3")
    record = IterationRecord(
        iteration=2, policy=ref, reference=ref, reward=ref, champion=ref, tables={}, metrics={}, seconds=1.0
    )
    assert not journal.is_recorded(root, "loop", record)
    journal.mark_recorded(lineage, record)
    assert journal.is_recorded(root, "loop", record)
    again = record.model_copy(update={"policy": ref.model_copy(update={"digest": "b" * 64})})
    assert not journal.is_recorded(root, "loop", again)


@pytest.mark.parametrize("barrier", journal.BARRIERS)
def test_what_a_closed_or_retired_run_was_told_is_said_again_behind_it(lineage, barrier):
    """Else the entries of the iteration that begins anew would find no run."""
    journal.append(lineage, "run", {"name": "x"})
    journal.append(lineage, barrier, {"why": "rollback"})
    journal.append(lineage, "run", {"name": "x"})
    journal.append(lineage, "run", {"name": "x"})
    assert kinds(lineage) == ["run", barrier, "run"]


def test_what_was_set_aside_is_forgotten_once_all_was_recorded_anew(lineage):
    journal.refuse(journal.append(lineage, "run", {"name": "x"}), "gone")
    assert journal.forget_refused(lineage) == 1
    assert list((lineage.lineage_folder / journal.FOLDER / journal.REFUSED).iterdir()) == []
    assert journal.forget_refused(lineage) == 0
