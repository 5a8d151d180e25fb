"""Numbers of models: from 1, one per role, never given twice, the same when asked again."""

import json

import pytest

from storage import iterations, lock, versions
from storage.errors import UnknownFormat
from storage.iterations import IterationRecord
from storage.refs import ModelRef


@pytest.fixture
def lineage(tmp_path):
    with lock.hold(tmp_path, "loop") as place:
        yield place


def ref(role, digest):
    return ModelRef(uri="/x", digest=digest * 64, role=role)


def test_numbers_count_from_one_for_each_role_and_repeat(lineage):
    given = [versions.assign(lineage.at(iteration=n), ref("policy", d)).version for n, d in enumerate("abc")]
    assert given == ["1", "2", "3"]
    assert versions.assign(lineage, ref("reward", "a")).version == "1"
    assert versions.assign(lineage.at(iteration=1), ref("policy", "b")).version == "2"


def test_the_same_bytes_in_another_iteration_and_other_bytes_in_the_same_one_are_versions_of_their_own(lineage):
    assert versions.assign(lineage.at(iteration=1), ref("policy", "a")).version == "1"
    assert versions.assign(lineage.at(iteration=2), ref("policy", "a")).version == "2"
    assert versions.assign(lineage.at(iteration=2), ref("policy", "b")).version == "3"


def test_a_lineage_of_before_goes_on_behind_what_its_records_name(lineage, monkeypatch):
    policy, reward = ref("policy", "a"), ref("reward", "b")
    record = IterationRecord(
        iteration=0,
        policy=policy.model_copy(update={"version": "7"}),
        reference=policy.model_copy(update={"version": "6"}),
        reward=reward.model_copy(update={"version": "2"}),
        refused_reward=reward.model_copy(update={"version": "4"}),
        champion=policy.model_copy(update={"version": "6"}),
        tables={},
        metrics={},
        seconds=1.0,
    )
    monkeypatch.setattr(versions, "records", lambda *_: [record])
    assert iterations.records is not versions.records
    assert versions.assign(lineage.at(iteration=1), policy).version == "8"
    assert versions.assign(lineage.at(iteration=1), reward).version == "5"
    assert versions.assign(lineage.at(iteration=1), ref("critic", "c")).version == "1"


def test_numbers_of_another_format_are_refused_by_name(lineage):
    versions.assign(lineage, ref("policy", "a"))
    path = lineage.lineage_folder / versions.VERSIONS_FILE
    path.write_text(json.dumps({"format": 2, "versions": {}}))
    with pytest.raises(UnknownFormat, match=r"versions\.json has format 2, this code reads 1"):
        versions.assign(lineage, ref("policy", "b"))
