"""The short form of `make chaos`: three kills and a full disk."""

import random

import pytest

from tests.chaos import faults, kills
from tests.chaos.bench import Bench
from tests.chaos.kills import Campaign

pytestmark = pytest.mark.orchestration


@pytest.fixture(scope="module")
def bench(prefect_url, tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("chaos"), prefect_url)


def test_three_kills_at_random_instants_change_nothing(bench):
    disturb = kills.driver(bench, bench.scripted, random.Random("short"))
    campaign = kills.chains(bench, Campaign("driver"), bench.subject, 3, disturb)
    assert campaign.findings == []
    assert [kill.outcome for kill in campaign.kills] == [kills.DIED] * 3


def test_a_full_disk_is_told_in_one_line_and_with_room_the_same_command_finishes(bench):
    try:
        assert faults.full_disk(bench) == []
    except faults.NotHere as error:
        pytest.skip(str(error))
