"""What Prefect does by itself: made once, corrected when the code changes, and left off when a person turned it off."""

from uuid import UUID

import pytest

from flows.automations import crashed_without_heartbeat, evaluate_after_retraining, install

DEPLOYMENT = UUID(int=1)


class Automations:
    """The part of Prefect's client that ``install`` uses, over a dict."""

    def __init__(self):
        self.kept, self.writes = {}, 0

    def read_automations_by_name(self, name):
        return [self.kept[name]] if name in self.kept else []

    def create_automation(self, wanted):
        self.kept[wanted.name] = wanted.model_copy()
        self.kept[wanted.name].__dict__["id"] = UUID(int=7)
        self.writes += 1

    def update_automation(self, number, wanted):
        assert number == UUID(int=7)
        self.create_automation(wanted)


@pytest.fixture
def client():
    return Automations()


@pytest.mark.parametrize("wanted", [evaluate_after_retraining(DEPLOYMENT), crashed_without_heartbeat()])
def test_a_second_installation_writes_nothing(client, wanted):
    assert install(client, wanted) is True
    assert install(client, wanted.model_copy(deep=True)) is False
    assert client.writes == 1


def test_a_changed_definition_is_corrected_and_a_person_s_switch_is_kept(client):
    install(client, crashed_without_heartbeat(300))
    name = crashed_without_heartbeat().name
    client.kept[name] = client.kept[name].model_copy(update={"enabled": False})
    client.kept[name].__dict__["id"] = UUID(int=7)
    assert install(client, crashed_without_heartbeat(120)) is True
    assert client.kept[name].trigger.within.total_seconds() == 120
    assert client.kept[name].enabled is False


def test_an_evaluation_is_asked_for_with_the_versions_of_the_event():
    (action,) = evaluate_after_retraining(DEPLOYMENT).actions
    request = action.parameters["request"]
    assert action.deployment_id == DEPLOYMENT
    assert request["when_busy"] == "wait"
    assert request["reward_version"]["value"]["template"] == "{{ event.payload.reward_version | tojson }}"


def test_an_end_of_any_name_is_an_end():
    """Skipped is a state of ours: a list of Prefect's own names would call such a run crashed."""
    trigger = crashed_without_heartbeat().trigger
    assert trigger.expect == {"prefect.flow-run.*"}
    assert trigger.after == {"prefect.flow-run.heartbeat"}
    assert trigger.within.total_seconds() == 300
