"""What Prefect does by itself: evaluate after a reward model was retrained, and call a run crashed whose process is gone."""

from datetime import timedelta
from typing import Any

from prefect.automations import Automation
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from tasks.announce import REWARD_RETRAINED

EVALUATE = "evaluate-policy/evaluate"
SECONDS_WITHOUT_HEARTBEAT = 300


def _from_event(name: str) -> dict[str, Any]:
    """A value of the event's payload with its JSON type: a bare template would make a number text."""
    template = f"{{{{ event.payload.{name} | tojson }}}}"
    return {"__prefect_kind": "json", "value": {"__prefect_kind": "jinja", "template": template}}


def evaluate_after_retraining(deployment: Any) -> AutomationCore:
    """Run the deployment ``evaluate`` with the versions that the event names; it waits for the lineage."""
    request = {name: _from_event(name) for name in ("lineage", "policy_version", "reward_version")}
    return AutomationCore(
        name="igrpo: reward model retrained -> evaluate",
        description="Measures the newest policy with the reward model that was just retrained.",
        trigger=EventTrigger(
            expect={REWARD_RETRAINED},
            match={"prefect.resource.id": "igrpo.lineage.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[
            RunDeployment(
                source="selected", deployment_id=deployment, parameters={"request": {**request, "when_busy": "wait"}}
            )
        ],
    )


def crashed_without_heartbeat(seconds: int = SECONDS_WITHOUT_HEARTBEAT) -> AutomationCore:
    """Call a run Crashed that sent heartbeats and then nothing at all, not even an end, for ``seconds``.

    The lineage lock of such a run is free (the kernel dropped it); should it be alive, its lock and token are as good as before.
    """
    return AutomationCore(
        name="igrpo: no heartbeat -> crashed",
        description=f"A run whose process or machine is gone; the next scheduled run resumes it. After {seconds} s.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},  # a state's event bears its name, and Skipped is one of ours
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=seconds),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, message=f"no heartbeat for {seconds} s: the process or its machine is gone"
            )
        ],
    )


def install(client: SyncPrefectClient, wanted: AutomationCore) -> bool:
    """Make or correct the automation of this name; False when it was there as wanted. One that was turned off stays off."""
    found = client.read_automations_by_name(wanted.name)
    if not found:
        client.create_automation(wanted)
        return True
    if _definition(found[0]) == _definition(wanted):
        return False
    changed = wanted.model_copy(update={"enabled": found[0].enabled})
    client.update_automation(found[0].id, AutomationCore.model_validate(changed.model_dump()))
    return True


def _definition(automation: AutomationCore | Automation) -> dict[str, Any]:
    """What we decide of an automation: all but its id, its owner and whether it is turned on."""
    dumped = automation.model_dump(mode="json", include={"name", "description", "trigger", "actions"})
    dumped["trigger"].pop("id", None)
    return dumped
