"""The short form of `make chaos`: some kills, and the faults that cost little."""

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


@pytest.mark.parametrize("fault", [faults.full_disk, faults.second_run], ids=lambda fault: fault.__name__)
def test_the_fault_has_its_promised_outcome(bench, fault):
    try:
        assert fault(bench) == []
    except faults.NotHere as error:
        pytest.skip(str(error))
