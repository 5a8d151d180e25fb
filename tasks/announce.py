"""Tell Prefect what happened in a lineage, so that its automations can start what follows."""

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from storage.refs import ModelRef, Place

REWARD_RETRAINED = "igrpo.reward-model.retrained"


@task(cache_policy=NO_CACHE)
def announce_reward(place: Place, policy: ModelRef, reward: ModelRef) -> None:
    """The event ``igrpo.reward-model.retrained``: a new reward model is in use, and this is the newest policy.

    The payload holds what the deployment ``evaluate`` is asked for. An event is a notice, not a record: one that is lost, or
    sent twice after a crash, changes nothing in the store.
    """
    emit_event(
        event=REWARD_RETRAINED,
        resource={
            "prefect.resource.id": f"igrpo.lineage.{place.lineage}",
            "prefect.resource.name": place.lineage,
            "igrpo.lineage": place.lineage,
        },
        payload={
            "lineage": place.lineage,
            "iteration": place.iteration,
            "policy_version": int(policy.version),
            "reward_version": int(reward.version),
        },
    )
