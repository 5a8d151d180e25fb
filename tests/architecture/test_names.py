"""A file is named after what it is about; a name that fits everything says nothing."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("flows", "tasks", "storage", "benchmarks", "tests")
FORBIDDEN = {"util", "utils", "helper", "helpers", "common", "misc", "stuff"}


def says_nothing(path):
    return any(word in FORBIDDEN for part in path.with_suffix("").parts for word in part.lower().split("_"))


def test_no_file_or_folder_has_a_name_that_fits_everything():
    named = [path.relative_to(ROOT) for room in ROOMS for path in ROOT.glob(f"{room}/**/*.py")]
    assert len(named) > 100
    assert [path for path in named if says_nothing(path)] == []


@pytest.mark.parametrize("name", ["utils.py", "tasks/helpers.py", "storage/utils/rows.py", "flows/cli_utils.py"])
def test_the_rule_sees_such_a_name_anywhere(name):
    assert says_nothing(Path(name))


def test_no_two_test_files_share_a_name():
    """pytest imports them by path, but reports, caches and people tell them apart by name."""
    names = [path.name for path in ROOT.glob("tests/**/test_*.py")]
    assert sorted(names) == sorted(set(names))
